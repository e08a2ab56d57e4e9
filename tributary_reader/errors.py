"""Errors of the reader."""

from __future__ import annotations

from schemas.errors import TributaryError


class ReadError(TributaryError):
    """A lake table that cannot be read, or a state of the table that no longer exists."""


class CleanedError(ReadError):
    """A state of a table of which files may be cleaned; ``oldest`` in its context is not."""


class WholeTableError(ReadError):
    """A position from which changes cannot be read, so that the whole table must be read once."""
