"""Whether the stream still follows from the lake's offsets, and the lake from the catalog.

Everything here is decided from facts that the caller has gathered. Nothing is sought or repaired:
each doubt stops the table with the gap named.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.errors import LostHistoryError, SchemaChangeError
from cdc.position import Lsn
from cdc.sources.values import Fingerprint, ServerIdentity, SlotHealth, SourceTable
from schemas.table import TableId

_REWRITTEN = "relfilenode"


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the cluster has it now.

    Args:
        id: Its UUID; None when there is no such topic.
        earliest: First offset still in the log, per partition.
        stable: Last stable offset, per partition.
    """

    id: str | None
    earliest: Mapping[int, int]
    stable: Mapping[int, int]


def check_topic(
    table: TableId, topic: str, *, topic_id: str | None, start: Mapping[int, int], now: TopicFacts
) -> None:
    """Check that the topic is the one the lake has read, and still holds what it has not.

    Args:
        table: The table.
        topic: Its topic.
        topic_id: UUID that the lake's last commit recorded.
        start: Next offset to read per partition, as the lake's last commit says.
        now: The topic as it is.

    Raises:
        LostHistoryError: It is not; names the gap.
    """
    if now.id is None:
        raise _lost(table, f"topic {topic} no longer exists", topic=topic)
    if topic_id is not None and now.id != topic_id:
        raise _lost(
            table,
            f"topic {topic} was deleted and created again (its id was {topic_id}, is {now.id})",
            topic=topic,
        )
    if set(now.stable) != set(start):
        raise _lost(
            table,
            f"topic {topic} has {len(now.stable)} partitions, the lake has read {len(start)}",
            topic=topic,
        )
    for partition, offset in sorted(start.items()):
        first, end = now.earliest.get(partition, 0), now.stable[partition]
        if offset < first:
            raise _lost(
                table,
                f"offsets {offset} to {first - 1} of topic {topic} partition {partition} were"
                " deleted before they were read",
                topic=topic,
                partition=partition,
                offset=offset,
            )
        if offset > end:
            raise _lost(
                table,
                f"topic {topic} partition {partition} ends at offset {end}, the lake has read up"
                f" to {offset}: records that were read are gone",
                topic=topic,
                partition=partition,
                offset=offset,
            )


def check_server(
    table: TableId, *, known: Mapping[str, Any] | None, now: ServerIdentity | None
) -> None:
    """Check that the source is the same cluster on the same timeline as at the handoff.

    Args:
        table: The table.
        known: ``system_identifier`` and ``timeline`` as recorded; what is missing is not compared.
        now: The primary; None when it was not asked.

    Raises:
        LostHistoryError: It is another one: a slot does not survive a switch by itself, so changes
            around it may be in neither log.
    """
    if known is None or now is None:
        return
    for name, found in (
        ("system_identifier", now.system_identifier),
        ("timeline", now.timeline),
    ):
        recorded = known.get(name)
        if recorded is not None and found is not None and str(recorded) != str(found):
            raise _lost(
                table,
                f"source {table.source} is another server: its {name.replace('_', ' ')} was"
                f" {recorded}, is {found}",
                field=name,
            )


def check_slot(
    table: TableId, slot: str, health: SlotHealth | None, *, stored: Lsn | None = None
) -> None:
    """Check that the log still holds everything the connector has not captured.

    Args:
        table: The table.
        slot: The name of its slot.
        health: The slot; None when it is gone.
        stored: The position that Connect has stored, where it is known.

    Raises:
        LostHistoryError: The slot is gone, or the log that it needs is.
    """
    problem = "no longer exists" if health is None else health.problem(stored)
    if problem is not None:
        raise _lost(table, f"replication slot {slot} {problem}", slot=slot)


def check_capture(table: TableId, problems: Sequence[str]) -> None:
    """Check that nothing was found that keeps changes from becoming events.

    Raises:
        LostHistoryError: Something was; changes since then may be missing from the topic.
    """
    if problems:
        raise _lost(
            table, f"changes of table {table} are not captured in full: {'; '.join(problems)}"
        )


def check_catalog(
    table: SourceTable,
    *,
    known: Fingerprint | None,
    now: Fingerprint,
    lake_columns: Collection[str],
    widened: Collection[str] = (),
) -> tuple[str, ...]:
    """Check that the source's table is the one that was copied, changed at most in ways we follow.

    Followed: nullable columns added without a value for old rows, columns dropped, wider types. A
    new file alone (VACUUM FULL, CLUSTER, TRUNCATE) is let through with a warning; together with a
    column that was altered it is a rewrite of that column, and its rows may have any values now.

    Args:
        table: The table as the catalog describes it.
        known: The fingerprint that was last accepted; None accepts any.
        now: The fingerprint now.
        lake_columns: The lake's source columns.
        widened: Columns whose lake type becomes wider by this change.

    Returns:
        Warnings, one sentence each.

    Raises:
        SchemaChangeError: A change that cannot be applied in place.
        LostHistoryError: The rows may have changed without any event.
    """
    if known is None:
        return ()
    # Facts that went through a state store are plain JSON; compare like with like.
    old, new = json.loads(known.to_json()), json.loads(now.to_json())
    if old == new:
        return ()
    old_columns, new_columns = old.pop("columns", {}), new.pop("columns", {})
    _check_columns(table, old_columns, new_columns, lake_columns)
    old_keys, new_keys = old.pop("keys", {}), new.pop("keys", {})
    if old_keys != new_keys:
        raise _changed(table, f"its key changed from {_shown(old_keys)} to {_shown(new_keys)}")
    rewritten = _without_files(old) != old and _files(old) != _files(new)
    old, new = _without_files(old), _without_files(new)
    if old != new:
        differences = "; ".join(Fingerprint(old).diff(Fingerprint(new)))
        raise _lost(
            table.table,
            f"table {table.table} was changed on the source in a way that sends no events:"
            f" {differences}",
        )
    if not rewritten:
        return ()
    for name in _altered(old_columns, new_columns):
        if name not in widened:
            raise _changed(
                table,
                f"column {name!r} was altered and the table rewritten (ALTER ... TYPE, perhaps"
                " with USING), so its rows may have changed without an event",
            )
    return (
        f"table {table.table} was rewritten on the source (VACUUM FULL, CLUSTER, TRUNCATE or a"
        " change of type); if rows were changed by it,"
        f" `tributary verify {table.table}` shows them",
    )


def _check_columns(
    table: SourceTable,
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
    lake_columns: Collection[str],
) -> None:
    by_name = {column.name: column for column in table.columns}
    for number, facts in new.items():
        before, name = old.get(number), str(facts["name"])
        if before is not None:
            if before["name"] != name:
                raise _changed(table, f"column {before['name']!r} was renamed to {name!r}")
            continue
        if name in lake_columns:
            # The lake still has the values of the column that was dropped.
            raise _changed(table, f"column {name!r} was dropped and added again")
        column = by_name.get(name)
        if column is None or column.generated:
            continue
        if not column.nullable:
            raise _changed(table, f"column {name!r} was added as NOT NULL")
        if column.default_sql is not None or column.fills_old_rows:
            raise _changed(table, f"column {name!r} was added with a default for old rows")


def _altered(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Columns that are in both and whose definition was written since."""
    return [str(facts["name"]) for number, facts in new.items() if old.get(number, facts) != facts]


def _files(facts: Mapping[str, Any]) -> list[Any]:
    leaves = facts.get("leaves", {})
    return [facts.get(_REWRITTEN), *(leaves[name].get(_REWRITTEN) for name in sorted(leaves))]


def _without_files(facts: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in facts.items() if key != _REWRITTEN}
    plain["leaves"] = {
        name: {key: value for key, value in leaf.items() if key != _REWRITTEN}
        for name, leaf in facts.get("leaves", {}).items()
    }
    return plain


def _shown(keys: Mapping[str, Any]) -> str:
    return json.dumps(keys, sort_keys=True)


def _changed(table: SourceTable, what: str) -> SchemaChangeError:
    return SchemaChangeError(
        f"table {table.table} changed on the source: {what}, which cannot be applied in place",
        remedy=f"Copy the table again: `tributary bootstrap {table.table}`.",
        table=table.table,
    )


def _lost(table: TableId, what: str, **context: Any) -> LostHistoryError:
    return LostHistoryError(
        f"the stream of table {table} no longer follows from the lake: {what}",
        remedy=f"Copy the table again: `tributary bootstrap {table}`. Until then readers keep what"
        " was committed.",
        table=table,
        **context,
    )
