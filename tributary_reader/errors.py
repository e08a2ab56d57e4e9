"""Errors of the reader."""

from __future__ import annotations

from schemas.errors import TributaryError


class ReadError(TributaryError):
    """A lake table that cannot be read, or a state of the table that no longer exists."""


class CleanedError(ReadError):
    """A state of a table whose files a cleaning may have deleted.

    ``oldest`` in the error's context is the instant of the oldest state that has all files.
    """


class WholeTableError(ReadError):
    """A position from which changes cannot be read, so that the whole table must be read once."""
