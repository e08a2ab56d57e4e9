"""The form in which lake commits and the schema history store a schema change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cdc.store.documents import Part
from schemas.changes import Change, Verdict

_COMMON = ("verdict", "why")


@dataclass(frozen=True)
class RecordedChange(Part):
    """The stored form of a schema change that the lake has followed, or at which a table stopped.

    Args:
        kind: The name of the change's class in `schemas.changes`.
        what: The change in words, for example ``column 'a' was dropped``.
        why: The reason for the verdict, in words that can follow a colon.
        verdict: The change's effect on the lake.
        facts: The values of the change's fields other than ``verdict`` and ``why``, by field name.
    """

    kind: str
    what: str
    why: str
    verdict: Verdict
    facts: Mapping[str, str | bool | tuple[str, ...] | None]

    @classmethod
    def of(cls, change: Change) -> RecordedChange:
        """Return the stored form of a schema change."""
        own = {one.name: getattr(change, one.name) for one in fields(change)}
        facts = {name: value for name, value in own.items() if name not in _COMMON}
        return cls(type(change).__name__, change.what, change.why, change.verdict, facts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that commands print for the change, as `Change.to_json` does."""
        common = {"change": self.kind, "what": self.what, "verdict": self.verdict.value}
        return {**common, "why": self.why, **self.facts}
