"""``discover``: lists the tables of sources, each with its state or whether it can be replicated.

This module also finds the tables that the arguments of a command select.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cdc.config.patterns import is_wildcard
from cdc.sources.source_facts import TableStats
from cdc.store.table_state import State
from operate.readiness_check import examine_all, without_table_name
from operate.selection import (
    Selection,
    can_match_many,
    expand,
    matches_none,
    not_on_plan,
    schemas_of,
    sources_of,
)
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.table_state import TableRecord
    from operate.context import Services

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One table of a source.

    Args:
        stats: The table's size, keys and kind, from the source's catalog.
        refusal: The reason why `onboard` with a wildcard would leave the table out; None if it
            would not, or if the table is on the plan.
        notes: Remarks that do not prevent the replication of the table.
        state: The table's state; RETIRED if the table was offboarded; None if it never was on the
            plan.
    """

    stats: TableStats
    refusal: TributaryError | None
    notes: tuple[str, ...]
    state: State | None

    @property
    def on_plan(self) -> bool:
        """Whether the table is on the plan, which a table that was offboarded is not."""
        return self.state not in (None, State.RETIRED)

    @property
    def problem(self) -> str:
        """The message of ``refusal`` without the table's name; empty without a refusal."""
        return (
            ""
            if self.refusal is None
            else without_table_name(self.stats.table, self.refusal.message)
        )

    @property
    def summary(self) -> str:
        """What ``discover`` prints about the table: its place on the plan, or its verdict."""
        if self.state is not None:
            return "on the plan" if self.on_plan else "offboarded"
        return "ready" if self.refusal is None else f"refused: {self.problem}"

    def to_json(self) -> dict[str, Any]:
        """The entry of ``discover`` as plain values."""
        stats = self.stats
        return {
            "table": str(stats.table),
            "kind": stats.kind,
            "rows_estimate": stats.rows_estimate,
            "bytes": stats.total_bytes,
            "primary_key": list(stats.primary_key),
            "replica_identity": stats.replica_identity,
            "partition_of": None if stats.partition_root is None else str(stats.partition_root),
            "ready": None if self.on_plan else self.refusal is None,
            "problem": self.problem or None,
            "remedy": None if self.refusal is None else self.refusal.remedy,
            "notes": list(self.notes),
            "state": None if self.state is None else self.state.value,
        }


def discover(
    services: Services,
    sources: Sequence[str] = (),
    *,
    only_new: bool = False,
    failed: dict[str, TributaryError] | None = None,
) -> list[Entry]:
    """List the tables of the given sources, or of all sources; partitions are left out.

    Only the catalogs are read, since reading the rows of thousands of tables would take hours.
    Tables on the plan are not judged here, since ``check`` examines them. Nor are tables that were
    offboarded, which only a person's decision brings back.

    Args:
        services: The services of the command.
        sources: Names of sources; if empty, all sources.
        only_new: Whether tables on the plan are left out.
        failed: Gets each source whose tables cannot be listed, with the error. If None, such a
            source is an error.
    """
    states = {record.table: record.state for record in services.store.tables()}
    on_plan = {table for table, state in states.items() if state is not State.RETIRED}
    named = sources or sorted(services.config.sources)
    listed = _of_sources(named, lambda name: services.source(name).tables(), failed)
    # A partitioned table is replicated as one table, with all of its partitions.
    found = [stats for stats in listed if stats.partition_root is None]
    strangers = [stats for stats in found if stats.table not in on_plan]
    judged = [stats.table for stats in strangers]
    examined = examine_all(services, judged, with_rows=False, not_again=judged)
    return [
        Entry(
            stats,
            examined.refused.get(stats.table),
            tuple(examined.notes.get(stats.table, ())),
            states.get(stats.table),
        )
        for stats in (strangers if only_new else found)
    ]


def _of_sources(
    sources: Sequence[str],
    listed: Callable[[str], Sequence[T]],
    failed: dict[str, TributaryError] | None,
) -> list[T]:
    """Return what ``listed`` returns for all tables of the given sources.

    Args:
        sources: Names of sources.
        listed: Lists the tables of one source.
        failed: Gets each source whose tables cannot be listed, with the error. If None, such a
            source is an error.
    """
    found: list[T] = []
    for name in sources:
        try:
            found += listed(name)
        except TributaryError as error:
            if failed is None:
                raise
            failed[name] = error
    return found


@dataclass(frozen=True)
class SelectedTables:
    """The tables that the arguments of `onboard` select.

    Args:
        tables: The tables, in the order of the arguments.
        by_wildcard: The tables that only wildcards select: no argument and no line of the file
            ``--file`` names them. The name of a shared lake table names each of its shards.
        in_bulk: The tables of which no argument is the name: a wildcard, the name of a shared lake
            table or the file ``--file`` selects them. A schedule repeats such commands. With
            ``--scheduled``, the arguments name no table.
        problems: Errors of single sources, whose tables wildcards cannot match now, and of single
            wildcards that match no table.
    """

    tables: tuple[TableId, ...]
    by_wildcard: frozenset[TableId]
    in_bulk: frozenset[TableId]
    problems: tuple[TributaryError, ...] = ()


def at_source(
    services: Services,
    arguments: Sequence[str],
    listed: Sequence[str] = (),
    *,
    scheduled: bool = False,
) -> SelectedTables:
    """Return the tables that names and wildcards select; wildcards match any source table.

    A source that cannot be queried, or a wildcard that matches no table, does not stop the others.

    Args:
        services: The services of the command.
        arguments: Names and wildcards of the command line.
        listed: Names and wildcards from the file of the option ``--file``.
        scheduled: Whether a schedule repeats the command. Its arguments then count as ``listed``.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: A named source is not configured.
        TributaryError: No table is selected, because of a single source or wildcard.
    """
    config = services.config
    typed, arguments = () if scheduled else arguments, [*arguments, *listed]
    known: list[TableId] = []
    failed: dict[str, TributaryError] = {}
    if any(can_match_many(argument, config) for argument in arguments):
        known = _of_sources(
            sources_of(arguments, config),
            lambda name: services.source(name).table_names(
                schemas_of(arguments, config, name), partitions=False
            ),
            failed,
        )
    unmatched: list[str] = []
    where = "of the sources"
    tables = expand(arguments, config, known, where=where, unmatched=unmatched.append)
    problems = _selection_problems(arguments, config, failed, unmatched)
    if not tables and len(problems) == 1:
        raise problems[0]

    def named(texts: Sequence[str]) -> set[TableId]:
        return {*expand(texts, config, known, where=where, unmatched=lambda _: None)}

    by_name = named([one for one in arguments if one in config.sharded or not is_wildcard(one)])
    alone = named([one for one in typed if not can_match_many(one, config)])
    every = frozenset(tables)
    return SelectedTables(tuple(tables), every - by_name, every - alone, tuple(problems))


def _selection_problems(
    arguments: Sequence[str],
    config: Config,
    failed: Mapping[str, TributaryError],
    unmatched: Sequence[str],
) -> list[TributaryError]:
    """Return an error for each source and each wildcard from which `onboard` gets no table.

    Args:
        arguments: Names and wildcards.
        config: The configuration.
        failed: The sources whose tables cannot be listed, each with the error.
        unmatched: The arguments that match no table of the other sources. If such an argument can
            match tables of a source that failed, only the source's error is returned.
    """
    found = []
    for name, error in failed.items():
        lost = [one for one in dict.fromkeys(arguments) if name in sources_of([one], config)]
        found.append(
            error.advising(
                f"Then run this command again: it could not look which tables of source {name}"
                f" match {', '.join(map(repr, lost))}."
            )
        )
    found += [
        matches_none(one, "of the sources")
        for one in dict.fromkeys(unmatched)
        if failed.keys().isdisjoint(sources_of([one], config))
    ]
    return found


def selected(
    services: Services, arguments: Sequence[str], *, retired: bool = False, paused: bool = True
) -> list[TableId]:
    """Return the tables that names and wildcards select; wildcards match tables on the plan.

    Without arguments, the result is the same as with the wildcard ``*``.

    Args:
        services: The services of the command.
        arguments: Names and wildcards.
        retired: Whether a wildcard also matches tables that were offboarded.
        paused: Whether a wildcard also matches paused tables. `bootstrap` leaves paused tables
            out, since it would resume them, and an operator has paused them for a reason.
    """
    left_out = {State.RETIRED: not retired, State.PAUSED: not paused}
    known = [
        record.table for record in services.store.tables() if not left_out.get(record.state, False)
    ]
    if not arguments:
        return known
    where = "on the plan" if paused else "on the plan that is not paused"
    return expand(arguments, services.config, known, where=where)


def followed(
    services: Services,
    arguments: Sequence[str],
    *,
    tiers: Sequence[str] = (),
    unmatched: Callable[[str], object] | None = None,
) -> Callable[[], list[TableRecord]]:
    """Return a function that reads the current records of a command's tables.

    Each call of the returned function reads the plan again. So the result includes tables that were
    onboarded since the previous call, and lacks tables that were offboarded since that call.

    Args:
        services: The services of the command.
        arguments: Names and wildcards. If there are none, all tables on the plan are selected.
        tiers: Only tables of these tiers are selected. If there are none, the tier does not matter.
        unmatched: Called with each tier and each wildcard that selects no table on the plan now. If
            None, such a tier or wildcard is an error.

    Raises:
        InvalidIdentifierError: An argument does not name a table.
        ConfigError: A source is not configured; a table that is named without a wildcard is not of
            the given tiers; or a tier or wildcard selects no table and ``unmatched`` is None.
        StateError: A table that is named without a wildcard is not on the plan.
    """
    selection = Selection(arguments, services.config, tiers)

    def on_plan() -> list[TableRecord]:
        return [one for one in services.store.tables() if one.state is not State.RETIRED]

    def records() -> list[TableRecord]:
        return [record for record in on_plan() if selection.selects(record)]

    known = {record.table: record for record in on_plan()}
    if missing := sorted(selection.named - set(known)):
        raise not_on_plan(*missing)
    for table in sorted(selection.named):
        selection.require_tier(known[table])
    for text in selection.unmatched(known.values()):
        if unmatched is None:
            raise matches_none(text, "on the plan")
        unmatched(text)
    return records
