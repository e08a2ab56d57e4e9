"""Errors of the reader."""

from __future__ import annotations

from schemas.errors import TributaryError


class ReadError(TributaryError):
    """A lake table that the reader cannot read, or a state of it that no longer exists."""


class WholeTableError(ReadError):
    """A position from which changes cannot be read; the reader must read the whole table once."""
