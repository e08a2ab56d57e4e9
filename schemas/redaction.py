"""The secrets that this process has read: what leaves it (errors, logs) goes without them."""

from __future__ import annotations

import json
import threading
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Characters of the shortest text that is taken for a secret."""

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
    for form in _forms:
        text = text.replace(form, "***")
    return text
