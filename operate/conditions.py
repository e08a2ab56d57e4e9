"""Conditions: what can be wrong with tables and captures, for the exit codes of commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from cdc.store.table_state import State
from operate.table_outcome import unfinished

if TYPE_CHECKING:
    from cdc.store.lease import HeldLease
    from cdc.store.table_state import TableRecord
    from operate.targets import Shortfall


class Condition(str, Enum):
    """What can be wrong with tables and captures; the values of ``--fail-on``."""

    LATE = "late"
    UNKEPT = "unkept"
    PAUSED = "paused"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    NEEDS_BOOTSTRAP = "needs_bootstrap"
    HALF_COPIED = "half_copied"
    LOST = "lost"
    DRIFT = "drift"
    CHECK_FAILED = "check_failed"
    READER_LATE = "reader_late"
    SILENT = "silent"
    OVER_LIMIT = "over_limit"
    EMPTY_STORE = "empty_store"


MEANINGS: Mapping[Condition, str] = MappingProxyType(
    {
        Condition.LATE: "a table's freshness target is missed",
        Condition.UNKEPT: "a table's freshness target cannot be kept, by prediction",
        Condition.PAUSED: "a table is paused, by an operator or by its settings",
        Condition.QUARANTINED: "a table lacks messages, which are in quarantine",
        Condition.FAILED: "a table has failed",
        Condition.NEEDS_BOOTSTRAP: "a table gets no changes until it is copied again",
        Condition.HALF_COPIED: "a table's copy, or that of its next generation, is not complete,"
        " and no process works on it now",
        Condition.LOST: "a table's stream no longer continues from its lake table; the next run"
        " makes it `needs_bootstrap`",
        Condition.DRIFT: "the newest `verify` of a table's copy found differences",
        Condition.CHECK_FAILED: "a check of a table with `policy: alarm` or `pause` has a failure"
        " that nothing has ended (docs/checks.md)",
        Condition.READER_LATE: "a reader of a table that has a limit (`readers`) has not read a"
        " commit for longer than that, must read the whole table, or its file cannot be read",
        Condition.SILENT: "a capture sends no changes, or `status` names another problem of it",
        Condition.OVER_LIMIT: "a slot holds back more log than the source's `wal_limit.alarm`",
        Condition.EMPTY_STORE: "the state store has no table, but connectors of the configuration"
        " exist; their names are listed",
    }
)
"""Each condition in words."""

_COPIES = frozenset({Condition.NEEDS_BOOTSTRAP, Condition.HALF_COPIED, Condition.LOST})
BY_STATE: Mapping[State, Condition] = MappingProxyType(
    {
        State.PAUSED: Condition.PAUSED,
        State.FAILED: Condition.FAILED,
        State.NEEDS_BOOTSTRAP: Condition.NEEDS_BOOTSTRAP,
    }
)
"""Maps a state of tables to the condition of the same name."""

Found = Mapping[Condition, Sequence[str]]
"""By condition, the names of the tables and captures in it; a condition without names is absent."""


class UnknownConditionError(ValueError):
    """``--fail-on`` names an unknown condition; the error's text lists the known conditions."""


def named_conditions(texts: Iterable[str]) -> frozenset[Condition]:
    """Return each `Condition` that values of ``--fail-on`` name; a value can be a list with commas.

    Raises:
        UnknownConditionError: A name is not the name of a condition, or the values contain no name.
    """
    names = [part.strip() for text in texts for part in text.split(",")]
    known = {one.value: one for one in Condition}
    wrong = [name for name in names if name.lower().replace("-", "_") not in known]
    if wrong or not names:
        listed = ", ".join(map(repr, wrong)) or "nothing"
        raise UnknownConditionError(f"{listed} is not one of {', '.join(known)}")
    return frozenset(known[name.lower().replace("-", "_")] for name in names)


def half_copied(
    record: TableRecord, build: TableRecord | None, held: Mapping[str, HeldLease]
) -> bool:
    """Whether a table has the condition ``half_copied``: an unfinished copy that no process runs.

    An unfinished copy for the table's next generation counts, too.

    Args:
        record: The table's record.
        build: The record of the table's next generation; None if there is none.
        held: The leases that processes hold, as a mapping from the name of the leased resource.
    """
    return any(
        (unfinished(one) is not None or one.beside)
        and ((lease := held.get(str(one.resource))) is None or lease.abandoned)
        for one in (record, build)
        if one is not None
    )


def of_record(
    record: TableRecord, build: TableRecord | None, held: Mapping[str, HeldLease]
) -> list[Condition]:
    """Return the conditions that a table's record shows; the arguments are as in `half_copied`."""
    found = [BY_STATE[record.state]] if record.state in BY_STATE else []
    return found + ([Condition.HALF_COPIED] if half_copied(record, build, held) else [])


def of_targets(targets: Iterable[Shortfall]) -> dict[Condition, list[str]]:
    """Return a mapping from condition to the tables that miss or cannot keep a freshness target."""
    found: dict[Condition, list[str]] = {}
    for one in targets:
        condition = Condition.LATE if one.missed else Condition.UNKEPT
        found.setdefault(condition, []).extend(map(str, one.tables))
    return found


def joined(*parts: Found) -> dict[Condition, list[str]]:
    """Return all findings in one mapping; each condition lists a name only once."""
    return {
        condition: names
        for condition in Condition
        if (names := sorted({name for part in parts for name in part.get(condition, ())}))
    }


def chosen(found: Found, wanted: Iterable[Condition]) -> Found:
    """Return only those of the found conditions that ``--fail-on`` names."""
    return {one: found[one] for one in Condition if one in set(wanted) and one in found}


def needs_copy(found: Found) -> bool:
    """Whether one of the found conditions requires a copy of a table.

    The command ``run`` then ends with exit code 4.
    """
    return bool(_COPIES & set(found))


def to_json(found: Found) -> dict[str, list[str]]:
    """Return the found conditions, each with its tables and captures, as plain values."""
    return {condition.value: list(names) for condition, names in found.items()}


def table_of_conditions() -> str:
    """Return the table of conditions in docs/observe.md."""
    rows = [f"| `{one.value}` | {MEANINGS[one]} |" for one in Condition]
    return "\n".join(["| condition | it holds if |", "|---|---|", *rows])
