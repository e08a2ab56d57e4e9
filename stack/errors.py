"""Errors of the local stack."""

from __future__ import annotations

from schemas.errors import TributaryError


class StackError(TributaryError):
    """The local stack cannot do what a command has requested."""


class ServerDiedError(StackError):
    """A stack's server ended or was not ready in time.

    The message has the end of the server's log.
    """


class UnavailableError(StackError):
    """This machine lacks a server and cannot fetch it; a stack without this server still works.

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
