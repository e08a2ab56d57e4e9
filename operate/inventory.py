"""``discover``: what the sources hold, and what of it can travel or already does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.config.shards import fed_by
from cdc.errors import ConfigError
from cdc.sources.values import TableStats
from cdc.state import State
from operate.selection import expand, sources_of, stands_for_many
from operate.verdict import Verdict, glance
from schemas.table import TableId

if TYPE_CHECKING:
    from operate.context import Services


@dataclass(frozen=True)
class Entry:
    """One table of a source.

    Args:
        stats: What its catalog says.
        verdict: Whether it can travel.
        state: Its state on the plan, None when it is not on it.
    """

    stats: TableStats
    verdict: Verdict
    state: State | None

    @property
    def summary(self) -> str:
        """The verdict in a word or two."""
        if self.state is not None:
            return "on the plan"
        return "ready" if self.verdict.ok else f"refused: {self.verdict.problem}"

    def to_json(self) -> dict[str, Any]:
        """The entry as plain values."""
        stats = self.stats
        return {
            "table": str(stats.table),
            "kind": stats.kind,
            "rows_estimate": stats.rows_estimate,
            "bytes": stats.total_bytes,
            "primary_key": list(stats.primary_key),
            "replica_identity": stats.replica_identity,
            "partition_of": None if stats.partition_root is None else str(stats.partition_root),
            "ready": self.verdict.ok,
            "problem": self.verdict.problem or None,
            "remedy": self.verdict.remedy or None,
            "notes": list(self.verdict.notes),
            "state": None if self.state is None else self.state.value,
        }


def discover(services: Services, sources: Sequence[str] = ()) -> list[Entry]:
    """The tables of the given sources, of all when none are given; partitions are left out."""
    states = {
        record.table: record.state
        for record in services.store.tables()
        if record.state is not State.RETIRED
    }
    entries = []
    for name in sources or sorted(services.config.sources):
        for stats in services.source(name).tables():
            if stats.partition_root is None:
                entries.append(Entry(stats, _verdict(services, stats), states.get(stats.table)))
    return entries


def _verdict(services: Services, stats: TableStats) -> Verdict:
    """Whether the table can travel with the settings that it would get."""
    try:
        return glance(stats, services.config.table_settings(stats.table))
    except ConfigError as error:
        return Verdict(error.message, error.remedy)


def at_source(services: Services, arguments: Sequence[str]) -> list[TableId]:
    """The tables that arguments mean; wildcards stand for what the sources have.

    Tables that cannot travel are left out of a wildcard: naming one says why. A lake table that
    several source tables feed would lack them, so its name stands for these, too.
    """
    known: list[TableId] = []
    if any(stands_for_many(argument, services.config) for argument in arguments):
        found = discover(services, sources_of(arguments, services.config))
        known = [
            entry.stats.table
            for entry in found
            if entry.verdict.ok or _fed_by(services, entry.stats.table) in arguments
        ]
    return expand(arguments, services.config, known, where="that could be onboarded")


def _fed_by(services: Services, table: TableId) -> str | None:
    try:
        return fed_by(table, services.config.tables)
    except ConfigError:
        return None  # its own verdict says why


def on_plan(
    services: Services, arguments: Sequence[str], *, retired: bool = False, paused: bool = True
) -> list[TableId]:
    """The tables that arguments mean; wildcards stand for what is on the plan, nothing for all.

    Args:
        services: What to work with.
        arguments: Names and wildcards.
        retired: Whether a wildcard stands for tables that were offboarded, too.
        paused: Whether it stands for paused ones, too: a person has paused them for a reason, and
            what would let them go on asks for their names.
    """
    left_out = {State.RETIRED: not retired, State.PAUSED: not paused}
    known = [
        record.table for record in services.store.tables() if not left_out.get(record.state, False)
    ]
    if not arguments:
        return known
    where = "on the plan" if paused else "on the plan that is not paused"
    return expand(arguments, services.config, known, where=where)
