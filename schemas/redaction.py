"""The secrets that this process has read: what leaves it (errors, logs) goes without them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Characters of the shortest text that is taken for a secret."""

# Passwords such as "postgres" or "orders" are names of commands, tables and roles, too.
_WORD = re.compile(r"[A-Za-z_]+")
_ADDING = threading.Lock()
# Replaced as a whole, since other threads read it meanwhile.
_forms: tuple[str, ...] = ()


def keep_secret(secret: str) -> None:
    """Have ``redact`` take this secret out of text, also as URLs, JSON and Python write it.

    What is shorter than ``SHORTEST`` stays: it is no secret, and text would become unreadable.
    """
    global _forms
    if len(secret) < SHORTEST or secret in _forms:
        return
    written = json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms.update(text[1:-1] for text in written)
    with _ADDING:
        # The longest first: one secret may be part of another.
        _forms = tuple(sorted(forms.union(_forms), key=len, reverse=True))


def redact(text: str) -> str:
    """The text without any secret that this process has read."""
    return _without(text, _forms)


def redact_own(text: str) -> str:
    """The same for text of our own, in which words are names, not what a server or driver said.

    A secret that is a word stays: without the names nobody could do what the text says, and the
    gaps would tell the secret.
    """
    return _without(text, [form for form in _forms if not _WORD.fullmatch(form)])


def _without(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, "***")
    return text
