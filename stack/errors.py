"""Errors of the local stack."""

from __future__ import annotations

from schemas.errors import TributaryError


class StackError(TributaryError):
    """The local stack cannot do what was asked of it."""


class ServerDiedError(StackError):
    """A server ended by itself or did not get ready; the message carries the end of its log."""
