"""Stores which hours and days of tables were announced as complete, and counts late rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.completeness import Covered, Unit, rows_of
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY, TABLE_RECORDS, State
from cdc.store.tables import complete_table_rows, named, of_table, period_rows, table_rows
from schemas.table import TableId

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.completeness import Calendar, CompletenessRules, Period
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord

_BATCH = 500
"""Maximum number of rows that one transaction deletes. While the transaction runs, no
other process can write to a SQLite store."""


@dataclass(frozen=True)
class Announcement(Part):
    """One hour or day of a table that was announced as complete.

    Args:
        table: The table.
        unit: Whether the period is an hour or a day.
        zone: The period's time zone.
        name: The period's name in the zone, such as ``2026-11-23T10``.
        starts_at: The first moment of the period, in UTC.
        ends_at: The first moment after the period, in UTC.
        announced_at: When the period was first announced.
        proven: A time by the source's clock. At the first announcement, the lake provably had every
            change that the source committed before this time.
        generation: The table's generation to which the newest announcement applies.
        attempt: UUID of the attempt (the try) that built this generation.
        instant: The table's newest commit when the period was announced for ``attempt``, or when an
            earlier announcement was moved to ``attempt``. The period's rows in later commits are
            late. An announcement that late rows cause does not change this field.
        revision: Number of announcements of the period.
        revised_at: When the period was last announced again; None if it was announced only once.
        late_rows: Number of the period's rows that commits have written after the first
            announcement.
        late_instant: The newest commit of ``attempt`` with rows that ``late_rows`` counts; None if
            there is no such commit.
        late_at: When the rows of the commit ``late_instant`` were counted.
        format: Version of this document.
    """

    table: TableId
    unit: Unit
    zone: str
    name: str
    starts_at: datetime
    ends_at: datetime
    announced_at: datetime
    proven: datetime
    generation: int
    attempt: str
    instant: str
    revision: int = 1
    revised_at: datetime | None = None
    late_rows: int = 0
    late_instant: str | None = None
    late_at: datetime | None = None
    format: Literal[1] = 1

    @property
    def covered(self) -> Covered:
        """The commits that the announcement covers."""
        return Covered(self.attempt, self.instant, self.late_instant)

    def again(self, at: datetime) -> Announcement:
        """Return the period's announcement with one more revision, made at ``at``."""
        return replace(self, revision=self.revision + 1, revised_at=at)

    def to_json(self) -> dict[str, Any]:
        """Return the announcement as values for JSON, without the table."""
        return {
            "period": self.name,
            "by": self.unit,
            "zone": self.zone,
            "start": self.starts_at,
            "end": self.ends_at,
            "announced_at": self.announced_at,
            "watermark": self.proven,
            "generation": self.generation,
            "instant": self.instant,
            "revision": self.revision,
            "revised_at": self.revised_at,
            "late_rows": self.late_rows,
            "late_instant": self.late_instant,
            "late_at": self.late_at,
        }


ANNOUNCEMENTS = Codec(Announcement, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's announcements."""


@dataclass(frozen=True)
class Announced:
    """What is announced of one table, as ``status`` and runs read it from the state store.

    Args:
        newest_end: End of the newest announced period.
        late_rows: Number of late rows that were counted for the table.
        attempt: UUID of the present attempt if all announcements apply to this attempt. If some
            announcements apply to earlier attempts, UUID of one of the earlier attempts.
    """

    newest_end: datetime
    late_rows: int
    attempt: str


@dataclass(frozen=True)
class Proof:
    """What was proven about a table at one time, so that complete periods can be announced.

    Args:
        record: The table's record, as it was read for the proof.
        rules: What the settings say about the table's periods.
        proven: A time by the source's clock. The lake provably has every change that the source
            committed before this time.
        periods: The periods to announce for the first time.
    """

    record: TableRecord
    rules: CompletenessRules
    proven: datetime
    periods: Sequence[Period]


class Announcements:
    """The announced periods of all tables; all processes of a store share these periods.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self, tables: Mapping[TableId, Calendar]) -> dict[TableId, Announced]:
        """Return, with one SQL statement, what is announced of each of the given tables.

        Tables without an announcement are left out.

        Args:
            tables: A mapping from each table to its calendar: hours or days, and a time zone.
                Announcements by another calendar do not count.

        Raises:
            StateError: The state store cannot be used.
        """
        if not tables:
            return {}
        with self._store.transaction() as connection:
            found = connection.execute(sa.select(complete_table_rows)).all()
        result = {}
        for row in found:
            table = TableId(row.source, row.schema_name, row.table_name)
            wanted = tables.get(table)
            if wanted is not None and (wanted.unit, wanted.zone) == (row.unit, row.zone):
                end = _stored_period_end(row.newest_end)
                result[table] = Announced(end, row.late_rows, row.attempt)
        return result

    def of(self, table: TableId, calendar: Calendar) -> list[Announcement]:
        """Return those announced periods of a table that the state store still has, oldest first.

        Raises:
            StateError: The state store cannot be used, or a stored document is no announcement.
        """
        query = sa.select(period_rows.c.entry).where(
            _periods_of_table(period_rows, table, calendar.unit, calendar.zone)
        )
        with self._store.transaction() as connection:
            found = connection.execute(query.order_by(period_rows.c.starts_at)).scalars().all()
        return [_read_announcement(text, table) for text in found]

    def first_start(self, table: TableId) -> datetime | None:
        """Return the start of the oldest announced period of a table; None if there is none.

        Raises:
            StateError: The state store cannot be used.
        """
        query = sa.select(sa.func.min(period_rows.c.starts_at)).where(of_table(period_rows, table))
        with self._store.transaction() as connection:
            found = connection.execute(query).scalar()
        return None if found is None else _stored_period_end(found)

    def announce(self, proofs: Sequence[Proof], at: datetime) -> list[Announcement]:
        """Announce periods of tables, all in one transaction.

        A table is left out if, after the table's proof was made, the table has left the state
        INCREMENTAL or was copied again. If another process announces one of the periods at the same
        time, nothing is stored, and a later call can try again.

        Returns:
            The announcements that were made: of new periods, and of earlier announced periods that
            were announced again.

        Raises:
            StateError: The state store cannot be used.
        """
        made: list[Announcement] = []
        try:
            with self._store.transaction() as connection:
                for proof in proofs:
                    instant = _newest_recorded_commit(connection, proof.record)
                    if instant is not None:
                        made += _renewed_announcements(connection, proof, instant, at)
                        made += _inserted_announcements(
                            connection, proof, instant, at, self._store.clock
                        )
                        _sum_up_announcements(connection, proof)
        except IntegrityError:
            return []
        return made

    def note_late(
        self, record: TableRecord, instant: str, slots: Mapping[int, int], *, reannounces: bool
    ) -> list[Announcement]:
        """Count a commit's late rows for each announced period; return the changed announcements.

        A commit counts once, however often a run sees it.

        Args:
            record: The table's record.
            instant: The instant of the commit.
            slots: A mapping from the start of each time slot (`slot_of`) to the number of the
                commit's rows in the slot.
            reannounces: Whether to announce a period again if the commit has late rows for it.

        Raises:
            StateError: The state store cannot be used, or a stored document is no announcement.
        """
        if not slots:
            return []
        rows, table, attempt = period_rows, record.table, str(record.attempt_id)
        within = (rows.c.ends_at > min(slots)) & (rows.c.starts_at <= max(slots))
        query = sa.select(rows.c.entry).where(of_table(rows, table) & within)
        at, changed = datetime.now(timezone.utc), []
        with self._store.transaction() as connection:
            for text in connection.execute(query.with_for_update()).scalars().all():
                known = _read_announcement(text, table)
                count = rows_of(known.starts_at, known.ends_at, slots)
                if not count or not known.covered.counts(attempt, instant):
                    continue
                late = replace(
                    known, late_rows=known.late_rows + count, late_instant=instant, late_at=at
                )
                changed.append(late.again(at) if reannounces else late)
                _update_announcement(connection, changed[-1], announced=reannounces)
                total = complete_table_rows.c.late_rows + count
                where = _periods_of_table(complete_table_rows, table, known.unit, known.zone)
                update = sa.update(complete_table_rows).where(where)
                connection.execute(update.values(late_rows=total))
        return changed

    def unmarked(self, tables: Iterable[TableId]) -> list[Announcement]:
        """Return the given tables' announcements whose marker file is missing or out of date.

        Raises:
            StateError: The state store cannot be used, or a stored document is no announcement.
        """
        wanted, rows = set(tables), period_rows
        query = sa.select(rows.c.entry).where(rows.c.pending == sa.true())
        with self._store.transaction() as connection:
            found = connection.execute(query.order_by(rows.c.starts_at)).scalars().all()
        read = (ANNOUNCEMENTS.read(text, "an announced period of a table") for text in found)
        return [one for one in read if one.table in wanted]

    def mark(self, written: Iterable[Announcement]) -> None:
        """Record that the marker files of announcements are written.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            for one in written:
                same = period_rows.c.revision == one.revision
                update = sa.update(period_rows).where(*_row_of_announcement(one), same)
                connection.execute(update.values(pending=False))

    def forget(self, keep_s: float) -> int:
        """Delete announcements older than ``keep_s``, except the newest of each table and calendar.

        All periods before an announced one are complete. So a period still counts as complete after
        its announcement is deleted. Only the number of the period's late rows is lost.

        Args:
            keep_s: The greatest age of an announcement, in seconds, by the state store's clock.

        Returns:
            Number of deleted announcements, at most some hundreds.

        Raises:
            StateError: The state store cannot be used.
        """
        rows, later = period_rows, period_rows.alias("later")
        same = [rows.c[name] == later.c[name] for name in (*_TABLE, "unit", "zone")]
        newer = sa.exists().where(*same, later.c.starts_at > rows.c.starts_at)
        old = (rows.c.noted_at < self._store.clock - keep_s) & newer
        query = sa.select(*rows.primary_key).where(old).order_by(rows.c.noted_at).limit(_BATCH)
        with self._store.transaction() as connection:
            keys = connection.execute(query).mappings().all()
            for key in keys:
                where = [rows.c[name] == value for name, value in key.items()]
                connection.execute(sa.delete(rows).where(*where))
        return len(keys)

    def drop(self, table: TableId) -> None:
        """Delete all announcements of a table that leaves the plan.

        Raises:
            StateError: The state store cannot be used.
        """
        with self._store.transaction() as connection:
            for rows in (period_rows, complete_table_rows):
                connection.execute(sa.delete(rows).where(of_table(rows, table)))


_TABLE = ("source", "schema_name", "table_name")


def _newest_recorded_commit(connection: Connection, record: TableRecord) -> str | None:
    """Return the instant of a table's newest commit that the state store has recorded.

    The result is None if the table is no longer INCREMENTAL, or was copied again after ``record``
    was read.
    """
    where = of_table(table_rows, record.table) & (table_rows.c.beside == sa.false())
    found = connection.execute(sa.select(table_rows.c.record).where(where)).scalar()
    if found is None:
        return None
    now = TABLE_RECORDS.read(found, f"the state of table {record.table}", table=record.table)
    same = now.state is State.INCREMENTAL and now.attempt_id == record.attempt_id
    return now.last_commit.instant if same and now.last_commit is not None else None


def _renewed_announcements(
    connection: Connection, proof: Proof, instant: str, at: datetime
) -> list[Announcement]:
    """Move announcements of earlier copies to the present copy if a proof covers their periods.

    A copy can bring changes that no event has shown, for example after a loss. So the settings
    decide whether the periods of the moved announcements are announced again.

    Returns:
        The announcements of those periods that were announced again.
    """
    record, rows, attempt = proof.record, period_rows, str(proof.record.attempt_id)
    reached = int((proof.proven - proof.rules.lateness).timestamp())
    where = (rows.c.ends_at <= reached) & (rows.c.attempt != attempt)
    query = sa.select(rows.c.entry).where(of_table(rows, record.table) & where)
    found = []
    for text in connection.execute(query).scalars().all():
        moved = replace(
            _read_announcement(text, record.table),
            attempt=attempt,
            generation=record.generation,
            instant=instant,
            late_instant=None,
        )
        found.append(moved.again(at) if proof.rules.reannounces else moved)
        _update_announcement(connection, found[-1], announced=proof.rules.reannounces)
    return found if proof.rules.reannounces else []


def _inserted_announcements(
    connection: Connection,
    proof: Proof,
    instant: str,
    at: datetime,
    clock: sa.ColumnElement[float],
) -> list[Announcement]:
    """Store an announcement for each new period of a proof; return these announcements."""
    record, calendar = proof.record, proof.rules.calendar
    found = [
        Announcement(
            *(record.table, calendar.unit, calendar.zone, period.name),
            starts_at=period.start,
            ends_at=period.end,
            announced_at=at,
            proven=proof.proven,
            generation=record.generation,
            attempt=str(record.attempt_id),
            instant=instant,
        )
        for period in proof.periods
    ]
    rows = [
        {
            **named(one.table),
            "unit": one.unit,
            "zone": one.zone,
            "starts_at": int(one.starts_at.timestamp()),
            "ends_at": int(one.ends_at.timestamp()),
            "pending": True,
            **_announcement_values(one),
        }
        for one in found
    ]
    if rows:
        connection.execute(sa.insert(period_rows).values(noted_at=clock), rows)
    return found


def _sum_up_announcements(connection: Connection, proof: Proof) -> None:
    """Store in SQL the end of a table's newest announced period, and `Announced.attempt`."""
    record, calendar, rows = proof.record, proof.rules.calendar, complete_table_rows
    where = _periods_of_table(rows, record.table, calendar.unit, calendar.zone)
    known = connection.execute(sa.select(rows).where(where)).first()
    ends = [int(one.end.timestamp()) for one in proof.periods]
    if known is None:
        if ends:
            key = {**named(record.table), "unit": calendar.unit, "zone": calendar.zone}
            first = {"newest_end": ends[-1], "late_rows": 0, "attempt": str(record.attempt_id)}
            connection.execute(sa.insert(rows).values(**key, **first))
        return
    other = of_table(period_rows, record.table) & (period_rows.c.attempt != str(record.attempt_id))
    left = connection.execute(sa.select(period_rows.c.attempt).where(other).limit(1)).scalar()
    values = {
        "newest_end": max([known.newest_end, *ends]),
        "attempt": left or str(record.attempt_id),
    }
    connection.execute(sa.update(rows).where(where).values(**values))


def _announcement_values(one: Announcement) -> dict[str, Any]:
    """Return the values that a later announcement of the period changes in the SQL row."""
    return {"attempt": one.attempt, "revision": one.revision, "entry": ANNOUNCEMENTS.write(one)}


def _update_announcement(connection: Connection, one: Announcement, *, announced: bool) -> None:
    """Replace a stored announcement; if ``announced``, record that its marker file is outdated."""
    values = _announcement_values(one) | ({"pending": True} if announced else {})
    connection.execute(sa.update(period_rows).where(*_row_of_announcement(one)).values(**values))


def _row_of_announcement(one: Announcement) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions that select the row of an announcement."""
    start = int(one.starts_at.timestamp())
    return [
        _periods_of_table(period_rows, one.table, one.unit, one.zone),
        period_rows.c.starts_at == start,
    ]


def _periods_of_table(
    rows: sa.Table, table: TableId, unit: str, zone: str
) -> sa.ColumnElement[bool]:
    """Return the SQL condition on rows about a table's announced periods of a unit and a zone."""
    return of_table(rows, table) & (rows.c.unit == unit) & (rows.c.zone == zone)


def _stored_period_end(seconds: int) -> datetime:
    """Convert a period's start or end in the store, in seconds since 1970, to an aware time."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def _read_announcement(text: str, table: TableId) -> Announcement:
    """Read the document of an announcement from the state store."""
    return ANNOUNCEMENTS.read(text, f"an announced period of table {table}", table=table)
