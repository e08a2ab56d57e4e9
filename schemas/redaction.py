"""Removes from errors and messages the secrets that this process has read."""

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
# Replaced as a whole, since other threads can read it at the same time.
_forms: tuple[str, ...] = ()


def keep_secret(secret: str) -> None:
    """Remember a secret, so that ``redact`` removes it, also in the forms of URLs, JSON and Python.

    A secret shorter than ``SHORTEST`` is not removed, since messages would become unreadable.
    """
    global _forms
    if len(secret) < SHORTEST or secret in _forms:
        return
    written = json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms.update(text[1:-1] for text in written)
    with _ADDING:
        # The longest first, since one secret can be part of another.
        _forms = tuple(sorted(forms.union(_forms), key=len, reverse=True))


def redact(text: str) -> str:
    """Return a message without the secrets that this process has read."""
    return _without_secrets(text, _forms)


def redact_own(text: str) -> str:
    """Return a message of Tributary without secrets; a plain word is never removed.

    In such a message, a plain word that equals a secret is a name, for example a table's. Without
    the name, nobody could understand the message, and the gap would reveal the secret. This
    function must not be used for messages of servers: in a server's message, such a word can be the
    secret itself.
    """
    return _without_secrets(text, [form for form in _forms if not _WORD.fullmatch(form)])


def _without_secrets(text: str, forms: Iterable[str]) -> str:
    """Return a message in which ``***`` replaces each of the given forms of secrets."""
    for form in forms:
        text = text.replace(form, "***")
    return text
