"""The state store: records, histories, leases, schemas; in SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import stamina
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from cdc.errors import StateError
from cdc.store.actor import Actor
from cdc.store.commit_counts import add_commits
from cdc.store.engine import LEAST_KEPT, exposed_file, open_engine, shown
from cdc.store.history import RUN_ENTRIES, SCHEMA_ENTRIES, RunEntry, SchemaEntry
from cdc.store.history_rows import Writer
from cdc.store.installation import Installation
from cdc.store.stored_costs import put_cost, stored_costs
from cdc.store.table_cost import TableCost
from cdc.store.table_state import TABLE_RECORDS, TableRecord
from cdc.store.tables import (
    FORMAT,
    MYSQL,
    copy_rows,
    format_rows,
    installation_rows,
    metadata,
    named,
    of_table,
    paused_replay_rows,
    run_rows,
    schema_change_rows,
    schema_rows,
    table_rows,
)
from schemas.table import TableId


class Store:
    """The state store at a database URL.

    Safe to share between threads.

    Args:
        url: SQLAlchemy's URL of the database, with secrets. Errors and the repr do not show them.
        run_id: Id of this process's runs in the histories; by default a new UUID.
        threads: Number of workers of this process that use the store at the same time.

    Raises:
        StateError: The database cannot be used, or has a state store of another format.
    """

    def __init__(self, url: str, run_id: str | None = None, *, threads: int = LEAST_KEPT) -> None:
        self._engine = open_engine(url, threads)
        self._by, self._run_id = Actor.current(), run_id or str(uuid.uuid4())
        self.shown_url = shown(self._engine.url)
        self._known_rows: dict[tuple[Any, ...], tuple[int, str, TableRecord]] = {}
        self._create()

    def __repr__(self) -> str:
        return f"Store({self.shown_url!r})"

    def close(self) -> None:
        """Close all connections to the state store."""
        self._engine.dispose()

    @property
    def exposed(self) -> Path | None:
        """The path of the state store's file if other users may access the file; else None."""
        return exposed_file(self._engine.url)

    @cached_property
    def installation(self) -> Installation:
        """The installation's identity, which the first process that needs one creates."""
        asked = sa.select(installation_rows.c.node)
        # Another process can insert the row first, which is then read below.
        with suppress(IntegrityError), self.transaction() as connection:
            if (node := connection.execute(asked).scalar()) is None:
                node = Installation.new().node
                connection.execute(sa.insert(installation_rows).values(only=1, node=node))
            return Installation(node)
        with self.transaction() as connection:
            return Installation(connection.execute(asked).scalar_one())

    def tables(self) -> list[TableRecord]:
        """Return the state store's records of all tables, ordered by source, schema and table."""
        return self._records(beside=False)

    def topics(self, source: str, tier: str) -> list[str]:
        """Return the topics that recorded tables have in the capture of a source and a tier.

        A table whose move is not finished has a topic in each of two captures.
        """
        return [
            one.topic
            for record in self.tables()
            for one in record.captures
            if (record.table.source, one.tier) == (source, tier)
        ]

    def builds(self) -> list[TableRecord]:
        """Return the records of the next generations that resyncs are building."""
        return self._records(beside=True)

    def get(self, table: TableId, *, beside: bool = False) -> TableRecord | None:
        """Return the state store's record of a table, or None if there is none.

        Args:
            table: The table.
            beside: Whether to return the record of the table's next generation instead.
        """
        with self.transaction() as connection:
            return _stored_record(connection, table, beside)

    def newest(self, record: TableRecord) -> TableRecord:
        """Return the stored version of a record; ``record`` itself if none is stored."""
        return self.get(record.table, beside=record.beside) or record

    def newest_within(self, connection: Connection, record: TableRecord) -> TableRecord:
        """Return what `newest` returns, within a transaction."""
        return _stored_record(connection, record.table, record.beside) or record

    def put(
        self,
        record: TableRecord,
        expected_version: int | None = None,
        *,
        schema: SchemaEntry | None = None,
    ) -> TableRecord:
        """Store a table's record if the stored record still has the expected version.

        Args:
            record: The record.
            expected_version: Version that the stored record must have now; 0 if the store must not
                contain the record yet. By default the version of ``record``.
            schema: Entry for the schema history. It is added in the same transaction, unless the
                history already has the entry.

        Returns:
            The record with its new version.

        Raises:
            StateError: The stored record has another version.
        """
        expected = record.version if expected_version is None else expected_version
        values = _values(record, expected + 1)
        try:
            with self.transaction() as connection:
                history = self._history(connection)
                former = history.former(record.table, beside=record.beside)
                if expected == 0:
                    row = {**named(record.table), "beside": record.beside, **values}
                    connection.execute(sa.insert(table_rows).values(**row))
                    changed = 1
                else:
                    update = sa.update(table_rows).where(_row_of_version(record, expected))
                    changed = connection.execute(update.values(**values)).rowcount
                if changed == 1:
                    history.add_state(record, former)
                if schema is not None and changed == 1:
                    history.add_schema(schema)
        except IntegrityError:
            changed = 0
        if changed != 1:
            raise _changed_record_error(record, expected)
        return replace(record, version=expected + 1)

    def put_all(self, records: Sequence[TableRecord]) -> None:
        """Store the records of several tables in one transaction.

        If another process has changed a stored record since it was read, this record is not
        replaced, and no error is raised. The new records must have the states of the stored ones,
        since nothing is added to the history of states.

        Args:
            records: The new records, each with the version of the stored record that was read.
        """
        known = [
            {**named(one.table), "beside": one.beside, "version": one.version} for one in records
        ]
        rows = [
            {f"known_{name}": value for name, value in key.items()} | _values(one, one.version + 1)
            for key, one in zip(known, records, strict=True)
        ]
        if not rows:
            return
        where = [table_rows.c[name] == sa.bindparam(f"known_{name}") for name in known[0]]
        with self.transaction() as connection:
            connection.execute(sa.update(table_rows).where(*where), rows)

    def promote(self, build: TableRecord, former: TableRecord) -> TableRecord:
        """Replace a table's record by the record of its next generation, in one transaction.

        Args:
            build: The next generation's record.
            former: The table's record, which is replaced.

        Returns:
            The table's new record.

        Raises:
            StateError: Another process has changed one of the two records since it was read.
        """
        taken = replace(build, beside=False)
        leave = sa.delete(table_rows).where(_row_of_version(build, build.version))
        enter = sa.update(table_rows).where(_row_of_version(former, former.version))
        with self.transaction() as connection:
            for record, statement in (
                (build, leave),
                (former, enter.values(**_values(taken, former.version + 1))),
            ):
                if connection.execute(statement).rowcount != 1:
                    raise _changed_record_error(record, record.version)
            self._history(connection).add_state(taken, (former.state, former.generation))
        return replace(taken, version=former.version + 1)

    def delete(self, table: TableId, *, beside: bool = False) -> None:
        """Delete a table's record, or with ``beside`` the record of its next generation.

        The table's histories stay.
        """
        with self.transaction() as connection:
            history = self._history(connection)
            history.add_removal(table, history.former(table, beside=beside), beside=beside)
            connection.execute(sa.delete(table_rows).where(_row_of_record(table, beside)))
            report = of_table(copy_rows, table) & (copy_rows.c.beside == beside)
            connection.execute(sa.delete(copy_rows).where(report))

    def record_schema(self, entry: SchemaEntry) -> None:
        """Add an entry to the schema history, unless the history has it already."""
        with self.transaction() as connection:
            self._history(connection).add_schema(entry)

    def schema_history(self, table: TableId) -> list[SchemaEntry]:
        """Return the schema history's entries for the table, oldest first."""
        query = sa.select(schema_change_rows.c.entry).where(of_table(schema_change_rows, table))
        query = query.order_by(schema_change_rows.c.id)
        with self.transaction() as connection:
            return [
                SCHEMA_ENTRIES.read(row.entry, f"an entry of the schema history of table {table}")
                for row in connection.execute(query)
            ]

    def record_run(self, entry: RunEntry, cost: TableCost | None = None) -> None:
        """Add an entry to the run history; join two older entries of the table if they are alike.

        Args:
            entry: The entry.
            cost: The new cost of the table's runs, which replaces the stored one. If None, the
                stored cost stays.
        """
        with self.transaction() as connection:
            self.add_run(connection, entry, cost)

    def add_run(self, connection: Connection, entry: RunEntry, cost: TableCost | None) -> None:
        """Do what `record_run` does, within a transaction."""
        self._history(connection).add_run(entry)
        add_commits(connection, entry.table, entry.commits)
        if cost is not None:
            put_cost(connection, entry.table, cost)

    def costs(self) -> dict[TableId, TableCost]:
        """Return a mapping from each table to the stored cost of the table's runs."""
        with self.transaction() as connection:
            return stored_costs(connection)

    def last_runs(self, table: TableId, count: int = 10) -> list[RunEntry]:
        """Return the newest entries of a table's run history, newest first."""
        query = (
            sa.select(run_rows.c.entry)
            .where(of_table(run_rows, table))
            .order_by(run_rows.c.id.desc())
            .limit(count)
        )
        with self.transaction() as connection:
            return [
                RUN_ENTRIES.read(row.entry, f"an entry of the run history of table {table}")
                for row in connection.execute(query)
            ]

    def keep_schema(self, registry: str, schema_id: int, document: str) -> None:
        """Store a registry's Avro schema (JSON), unless a schema with its id is stored already."""
        row = {"registry": registry, "schema_id": schema_id, "document": document}
        try:
            with self.transaction() as connection:
                connection.execute(sa.insert(schema_rows).values(**row))
        except IntegrityError:
            return

    def kept_schema(self, registry: str, schema_id: int) -> str | None:
        """Return the stored copy of a registry's Avro schema (JSON); None if none is stored."""
        where = (schema_rows.c.registry == registry) & (schema_rows.c.schema_id == schema_id)
        with self.transaction() as connection:
            return connection.execute(sa.select(schema_rows.c.document).where(where)).scalar()

    def note_paused_replay(self, source: str) -> None:
        """Record that this process is about to pause replay on a source's replica.

        If the process dies, the next command that opens the state store resumes replay.
        """
        try:
            with self.transaction() as connection:
                connection.execute(sa.insert(paused_replay_rows).values(source=source))
        except IntegrityError:
            return

    def forget_paused_replay(self, source: str) -> None:
        """Delete the record of `note_paused_replay` that a source's replay may be paused."""
        with self.transaction() as connection:
            gone = sa.delete(paused_replay_rows).where(paused_replay_rows.c.source == source)
            connection.execute(gone)

    def paused_replays(self) -> list[str]:
        """Return the sources whose replay may be paused, as `note_paused_replay` has recorded."""
        with self.transaction() as connection:
            return list(connection.execute(sa.select(paused_replay_rows.c.source)).scalars())

    @property
    def clock(self) -> sa.ColumnElement[float]:
        """The state store's clock as a SQL expression, in seconds since 1970 (UTC)."""
        dialect = self._engine.dialect.name
        if dialect == "sqlite":
            return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Double)
        if dialect in MYSQL:
            return sa.literal_column("unix_timestamp(sysdate(6))", sa.Double)
        if dialect == "postgresql":
            return sa.literal_column(
                "cast(extract(epoch from clock_timestamp()) as double precision)", sa.Double
            )
        raise StateError(
            f"the state store does not know the clock of a {dialect} database",
            remedy="Use a SQLite, PostgreSQL, MySQL or MariaDB URL for state.url.",
            field="state.url",
        )

    def now(self) -> datetime:
        """Return the time by the state store's clock, aware UTC."""
        with self.transaction() as connection:
            seconds = float(connection.execute(sa.select(self.clock)).scalar_one())
        return datetime.fromtimestamp(seconds, timezone.utc)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction of the state store.

        An error of the database is raised as a ``StateError``, whose text has neither secrets nor
        stored values.

        Raises:
            StateError: The database failed. Only an ``IntegrityError`` is raised unchanged.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise self._unusable(error) from None

    def _history(self, connection: Connection) -> Writer:
        """Return the writer that adds entries to the histories in a transaction."""
        return Writer(connection, self.clock, self._by, self._run_id)

    def _records(self, *, beside: bool) -> list[TableRecord]:
        columns = (table_rows.c.source, table_rows.c.schema_name, table_rows.c.table_name)
        query = sa.select(table_rows).where(table_rows.c.beside == beside).order_by(*columns)
        with self.transaction() as connection:
            return [self._parsed(row) for row in connection.execute(query)]

    def _parsed(self, row: sa.Row[Any]) -> TableRecord:
        """Return the record in a row; parse the row only if it changed since the last parsing.

        Each round of `run --continuous` reads all rows, and few of them have changed.
        """
        key = (row.source, row.schema_name, row.table_name, row.beside)
        known = self._known_rows.get(key)
        if known is None or known[:2] != (row.version, row.record):
            known = self._known_rows[key] = (row.version, row.record, _read_table_record(row))
        return known[2]

    def _create(self) -> None:
        """Create the missing SQL tables; raise ``StateError`` if the store's format differs."""
        try:
            self._create_tables()
        except (SQLAlchemyError, TypeError, ValueError, OSError) as error:
            # A driver reports a wrong parameter by an error of its own, or by one of Python's.
            raise self._unusable(error) from None
        with self.transaction() as connection:
            found = connection.execute(sa.select(sa.func.max(format_rows.c.version))).scalar()
        if found is None:
            try:
                with self.transaction() as connection:
                    connection.execute(sa.insert(format_rows).values(version=FORMAT))
            except IntegrityError:
                return
        elif found != FORMAT:
            later = found > FORMAT
            raise StateError(
                f"the state store {self.shown_url} has format {found}; this version knows {FORMAT}",
                remedy="Use the version of tributary that wrote it, or a later one."
                if later
                else "Offboard its tables with the version of tributary that wrote it, then name"
                " another state store as state.url, and onboard them again with --take-over.",
                field="state.url",
            )

    def _create_tables(self) -> None:
        """Create the missing SQL tables, even if another process creates them at the same time."""
        for attempt in stamina.retry_context(
            on=_lost_a_race, attempts=2 * len(metadata.tables), wait_initial=0.05, wait_max=1.0
        ):
            with attempt:
                metadata.create_all(self._engine)

    def _unusable(self, error: Exception) -> StateError:
        """Return the error for a failure of the state store, with the first line of ``error``."""
        cause = getattr(error, "orig", None) or error
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        return StateError(
            f"the state store {self.shown_url} is not usable: {reason}",
            remedy="Check state.url, that its database is up, and that the login may create "
            "and write tables.",
            field="state.url",
        )


def _lost_a_race(error: Exception) -> bool:
    """Whether an error means that another process has just created the state store's SQL tables."""
    signs = ("already exists", "concurrent DDL", "pg_type_typname_nsp_index")
    return isinstance(error, SQLAlchemyError) and any(text in str(error) for text in signs)


def _stored_record(connection: Connection, table: TableId, beside: bool) -> TableRecord | None:
    """Return the state store's record of a table; with ``beside``, of its next generation."""
    row = connection.execute(sa.select(table_rows).where(_row_of_record(table, beside))).first()
    return None if row is None else _read_table_record(row)


def _row_of_record(table: TableId, beside: bool) -> sa.ColumnElement[bool]:
    """Return the SQL condition on a table's record; if ``beside``, on the next generation's."""
    return of_table(table_rows, table) & (table_rows.c.beside == beside)


def _row_of_version(record: TableRecord, version: int) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the row with the given version of a table's record."""
    return _row_of_record(record.table, record.beside) & (table_rows.c.version == version)


def _values(record: TableRecord, version: int) -> dict[str, Any]:
    """Return the values of a record's SQL row, except those of the primary key."""
    return {
        "state": record.state.value,
        "generation": record.generation,
        "version": version,
        "record": TABLE_RECORDS.write(record),
    }


def _changed_record_error(record: TableRecord, expected: int) -> StateError:
    """Return the error for a table's record that another process has changed in the state store."""
    return StateError(
        f"the state of {record.resource if record.beside else f'table {record.table}'} was changed"
        " by another process meanwhile",
        remedy="Run the command again; it starts from the present state.",
        table=record.table,
        expected_version=expected,
    )


def _read_table_record(row: sa.Row[Any]) -> TableRecord:
    table = TableId(row.source, row.schema_name, row.table_name)
    record = TABLE_RECORDS.read(row.record, f"the state of table {table}", table=table)
    return replace(record, version=row.version)
