"""An error as it is kept after the process that met it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.store.documents import Part
from schemas.errors import TributaryError


@dataclass(frozen=True)
class ErrorRecord(Part):
    """What is kept of an error; without secrets, as the error itself.

    Args:
        error: Name of its class.
        message: What happened.
        remedy: What a person can do next.
        context: The names in the message as values.
    """

    error: str
    message: str
    remedy: str
    context: Mapping[str, str]

    @classmethod
    def of(cls, error: TributaryError) -> ErrorRecord:
        """The record of an error."""
        return cls(**error.to_dict())
