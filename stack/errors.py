"""Errors of the local stack."""

from __future__ import annotations

from schemas.errors import TributaryError


class StackError(TributaryError):
    """The local stack cannot do what was asked of it."""


class ServerDiedError(StackError):
    """A server ended by itself or did not get ready; the message carries the end of its log."""


class UnavailableError(StackError):
    """A server that this machine neither has nor can fetch; stacks without it still work.

    Args:
        message: Why it is not to be had.
        remedy: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "Install the server, or do without it: the other sources work.",
        **context: object,
    ) -> None:
        super().__init__(message, remedy=remedy, **context)
