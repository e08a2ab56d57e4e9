"""The secrets that this process has read; errors and logs leave it without them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Length of the shortest text that is treated as a secret, in characters."""

# Passwords such as "postgres" or "orders" are also names of commands, tables and roles.
_WORD = re.compile(r"[A-Za-z_]+")
_ADDING = threading.Lock()
# Replaced as a whole, since other threads may read it at the same time.
_forms: tuple[str, ...] = ()


def keep_secret(secret: str) -> None:
    """Have ``redact`` remove this secret from text, also in its URL, JSON and Python forms.

    Text shorter than ``SHORTEST`` stays: it is not a secret, and text would become unreadable.
    """
    global _forms
    if len(secret) < SHORTEST or secret in _forms:
        return
    written = json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms.update(text[1:-1] for text in written)
    with _ADDING:
        # The longest first, since one secret may be part of another.
        _forms = tuple(sorted(forms.union(_forms), key=len, reverse=True))


def redact(text: str) -> str:
    """The text without any secret that this process has read."""
    return _without(text, _forms)


def redact_own(text: str) -> str:
    """The same for the project's own text, where words are names; not for text of servers.

    A secret that is a word stays: without the names a reader cannot follow the text, and the gaps
    would reveal the secret.
    """
    return _without(text, [form for form in _forms if not _WORD.fullmatch(form)])


def _without(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, "***")
    return text
