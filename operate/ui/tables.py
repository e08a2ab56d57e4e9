"""The list of tables: filtered, sorted and cut into pages on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cdc.store.table_state import State
from operate.conditions import Condition

if TYPE_CHECKING:
    from operate.status import TableStatus
    from operate.ui.troubles import Tone

PER_PAGE = 50
"""Rows of a page."""

TONES: Mapping[State, Tone] = {
    State.REGISTERED: "quiet",
    State.BOOTSTRAPPING: "quiet",
    State.CATCHING_UP: "quiet",
    State.INCREMENTAL: "good",
    State.PAUSED: "warn",
    State.NEEDS_BOOTSTRAP: "bad",
    State.FAILED: "bad",
    State.RETIRED: "quiet",
}


@dataclass(frozen=True)
class Row:
    """One table in the list.

    Args:
        name: The table, as commands take it.
        state: The table's state.
        tone: How the state is shown.
        freshness_s: ``TableStatus.freshness_s``, in seconds; None if not known.
        target_s: The table's freshness target, in seconds.
        late: Whether the table is INCREMENTAL and ``freshness_s`` is above ``target_s``.
        behind: Greatest possible number of waiting events; None if not known.
        committed_at: When the newest commit was made; None before the first commit.
        tier: The table's tier.
        conditions: What is not as it should be.
        status: All that `status` knows of the table.
    """

    name: str
    state: str
    tone: Tone
    freshness_s: float | None
    target_s: int
    late: bool
    behind: int | None
    committed_at: datetime | None
    tier: str
    conditions: tuple[str, ...]
    status: TableStatus

    @property
    def used(self) -> float | None:
        """The freshness divided by the target; None if the freshness or the target is not known."""
        if self.freshness_s is None or not self.target_s:
            return None
        return self.freshness_s / self.target_s


def row(table: TableStatus) -> Row:
    """Return a table's row in the page's list of tables."""
    record = table.record
    commit = record.last_commit
    return Row(
        str(record.table),
        record.state.value,
        TONES[record.state],
        table.freshness_s,
        table.target_s,
        table.late,
        table.events_behind,
        None if commit is None else commit.committed_at,
        record.tier,
        tuple(one.value for one in table.conditions),
        table,
    )


def _unknown_last(value: float | None) -> tuple[bool, float]:
    """Return a sort key for a column of the list: greatest values first, unknown values last."""
    return (value is None, -(value or 0.0))


SORTS: Mapping[str, Callable[[Row], Any]] = {
    "table": lambda one: one.name,
    "state": lambda one: (
        *(one.tone != "bad", one.tone != "warn", not one.late, not one.conditions),
        *(one.state, one.name),
    ),
    "freshness": lambda one: (_unknown_last(one.freshness_s), one.name),
    "used": lambda one: (_unknown_last(one.used), one.name),
    "behind": lambda one: (_unknown_last(one.behind), one.name),
    "commit": lambda one: (
        one.committed_at is None,
        one.committed_at and one.committed_at.timestamp(),
        one.name,
    ),
}
"""The orders of the list, by name. Each order is a function that returns a row's sort key."""


@dataclass(frozen=True)
class Wanted:
    """What a viewer wants to see of the list.

    Args:
        text: Words; the name of each shown table contains all of them.
        state: The state, or the condition, of the tables; empty for all.
        sort: A key of `SORTS`.
        page: The page, from 1.
    """

    text: str = ""
    state: str = ""
    sort: str = "state"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """Return what a query of the list asks for; a value that is not valid counts as absent."""
        sort, page = query.get("sort", ""), query.get("page", "")
        return cls(
            query.get("q", "").strip()[:200],
            query.get("state", "") if query.get("state", "") in FILTERS else "",
            sort if sort in SORTS else cls.sort,
            int(page) if page.isdecimal() and 0 < len(page) < 7 and int(page) else 1,
        )

    def query(self, **changed: Any) -> str:
        """Return a link's query for the list, with ``changed`` values; the default page is 1."""
        one = replace(self, **({"page": 1} | changed))
        values = {"q": one.text, "state": one.state, "sort": one.sort, "page": one.page}
        usual = {"q": "", "state": "", "sort": Wanted.sort, "page": 1}
        return urlencode({name: value for name, value in values.items() if value != usual[name]})


FILTERS: Mapping[str, str] = {
    **{one.value: one.value.replace("_", " ") for one in State if one is not State.RETIRED},
    **{
        one.value: one.value.replace("_", " ")
        for one in (
            *(Condition.LATE, Condition.QUARANTINED, Condition.HALF_COPIED, Condition.LOST),
            *(Condition.DRIFT, Condition.CHECK_FAILED),
        )
    },
}
"""The states and conditions by which the list is filtered, with their names for people."""


@dataclass(frozen=True)
class Listing:
    """One page of the list.

    Args:
        rows: The rows of the page.
        total: Number of all tables.
        found: Number of tables that pass the filter.
        wanted: What the viewer wants to see. ``wanted.page`` is the page that is shown.
        pages: Number of pages.
    """

    rows: Sequence[Row]
    total: int
    found: int
    wanted: Wanted
    pages: int

    @property
    def first(self) -> int:
        """Number of the first shown row, from 1."""
        return (self.wanted.page - 1) * PER_PAGE + 1


def listing(tables: Iterable[TableStatus], wanted: Wanted, *, all_rows: bool = False) -> Listing:
    """Return a page of the list of tables, as ``tributary ui`` shows it.

    Args:
        tables: All tables.
        wanted: What to show.
        all_rows: Whether to return all rows as one page.
    """
    rows = [row(one) for one in tables]
    words = wanted.text.lower().split()
    found = [
        one
        for one in rows
        if (not wanted.state or wanted.state == one.state or wanted.state in one.conditions)
        and all(word in one.name.lower() for word in words)
    ]
    found.sort(key=SORTS[wanted.sort])
    pages = 1 if all_rows else max(1, -(-len(found) // PER_PAGE))
    page = min(wanted.page, pages)
    shown = found if all_rows else found[(page - 1) * PER_PAGE : page * PER_PAGE]
    return Listing(shown, len(rows), len(found), replace(wanted, page=page), pages)
