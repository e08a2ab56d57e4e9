"""A table whose changes a source's server sends to a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.fingerprint import Fingerprint


@dataclass(frozen=True)
class SentTable:
    """A table in a source's list of captured tables.

    Args:
        removal: The statement that removes the table from the list.
        is_of: Returns whether a fingerprint is of this table, even if the table had another name
            when the fingerprint was read.
    """

    removal: str
    is_of: Callable[[Fingerprint], bool] = field(compare=False)
