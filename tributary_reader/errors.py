"""Errors of the reader."""

from __future__ import annotations

from schemas.errors import TributaryError


class ReadError(TributaryError):
    """A reader cannot read a lake table, or the requested state of the table no longer exists."""


class CleanedError(ReadError):
    """A cleaning may have deleted files that the table had at the instant that a reader requested.

    ``oldest`` in the error's context is the oldest instant for which all files exist.
    """


class WholeTableError(ReadError):
    """The changes since a reader's position cannot be read; the whole table must be read once."""
