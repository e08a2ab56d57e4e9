"""Errors of the local stack."""

from __future__ import annotations

from schemas.errors import TributaryError


class StackError(TributaryError):
    """The local stack cannot do what a command has requested."""


class ServerDiedError(StackError):
    """A stack's server has ended or is not ready in time; the message has the end of its log."""


class UnavailableError(StackError):
    """This machine lacks a server and cannot fetch it. A stack without this server still works.

    Args:
        message: The reason why the server is not available.
        remedy: What to do about this.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "Install the server, or leave it out: the other sources work without it.",
        **context: object,
    ) -> None:
        super().__init__(message, remedy=remedy, **context)
