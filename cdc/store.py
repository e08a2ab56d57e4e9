"""The state store: records, run history and leases in any database that SQLAlchemy reaches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from cdc.errors import StateError
from cdc.history import RunEntry
from cdc.secrets import keep_out_of_logs
from cdc.state import TableRecord
from schemas.table import TableId

FORMAT = 1
"""Version of the tables below; a store of a later version is refused."""

BUSY_TIMEOUT_S = 30
"""How long a statement waits for another writer of the store."""

_MYSQL = ("mysql", "mariadb")


def _name(length: int = 128) -> TypeEngine[str]:
    """A name that compares by its bytes, also where the server's default folds case."""
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *_MYSQL)


def _document() -> TypeEngine[str]:
    return sa.Text().with_variant(mysql.LONGTEXT(), *_MYSQL)


_metadata = sa.MetaData()

_format = sa.Table(
    "tributary_format",
    _metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)

_tables = sa.Table(
    "tributary_table",
    _metadata,
    sa.Column("source", _name(), primary_key=True),
    sa.Column("schema_name", _name(), primary_key=True),
    sa.Column("table_name", _name(), primary_key=True),
    sa.Column("shard", _name(), primary_key=True),
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("record", _document(), nullable=False),
)

_runs = sa.Table(
    "tributary_run",
    _metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    sa.Column("source", _name(), nullable=False),
    sa.Column("schema_name", _name(), nullable=False),
    sa.Column("table_name", _name(), nullable=False),
    sa.Column("entry", _document(), nullable=False),
    sa.Index("tributary_run_table", "source", "schema_name", "table_name", "id"),
)

leases = sa.Table(
    "tributary_lease",
    _metadata,
    sa.Column("resource", _name(512), primary_key=True),
    sa.Column("owner", sa.String(256), nullable=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
"""One row per resource that was ever leased; rows stay, so that tokens only rise."""


class Store:
    """The state store at a database URL. Safe to share between threads.

    Args:
        url: Any SQLAlchemy URL, with its secrets. It is not kept in errors or in the repr.

    Raises:
        StateError: The database cannot be reached, or holds a store of a later version.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.shown_url = self._engine.url.render_as_string(hide_password=True)
        self._create()

    def __repr__(self) -> str:
        return f"Store({self.shown_url!r})"

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def tables(self) -> list[TableRecord]:
        """All records, by source, schema, table and shard."""
        columns = (_tables.c.source, _tables.c.schema_name, _tables.c.table_name, _tables.c.shard)
        with self.transaction() as connection:
            rows = connection.execute(sa.select(_tables).order_by(*columns)).all()
        return [_record(row.record, row.version) for row in rows]

    def get(self, table: TableId, *, shard: str | None = None) -> TableRecord | None:
        """The record of a table, if there is one."""
        with self.transaction() as connection:
            row = connection.execute(sa.select(_tables).where(_key(table, shard))).first()
        return None if row is None else _record(row.record, row.version)

    def put(self, record: TableRecord, expected_version: int | None = None) -> TableRecord:
        """Store a record, if nobody has changed it since it was read.

        Args:
            record: What to store.
            expected_version: Version that the store must hold now, 0 for none; by default that
                of the record.

        Returns:
            The record with its new version.

        Raises:
            StateError: The store holds another version.
        """
        expected = record.version if expected_version is None else expected_version
        values = {
            "state": record.state.value,
            "generation": record.generation,
            "version": expected + 1,
            "record": json.dumps(record.to_json()),
        }
        key = {
            "source": record.table.source,
            "schema_name": record.table.schema,
            "table_name": record.table.name,
            "shard": record.shard or "",
        }
        try:
            with self.transaction() as connection:
                if expected == 0:
                    connection.execute(sa.insert(_tables).values(**key, **values))
                    changed = 1
                else:
                    where = _key(record.table, record.shard) & (_tables.c.version == expected)
                    update = sa.update(_tables).where(where).values(**values)
                    changed = connection.execute(update).rowcount
        except IntegrityError:
            changed = 0
        if changed != 1:
            raise StateError(
                f"the state of table {record.table} was changed by someone else meanwhile",
                remedy="Run the command again; it starts from the state that is there now.",
                table=record.table,
                expected_version=expected,
            )
        return replace(record, version=expected + 1)

    def delete(self, table: TableId, *, shard: str | None = None) -> None:
        """Forget a table; its run history stays."""
        with self.transaction() as connection:
            connection.execute(sa.delete(_tables).where(_key(table, shard)))

    def record_run(self, entry: RunEntry) -> None:
        """Add to the run history."""
        row = {
            "source": entry.table.source,
            "schema_name": entry.table.schema,
            "table_name": entry.table.name,
            "entry": json.dumps(entry.to_json()),
        }
        with self.transaction() as connection:
            connection.execute(sa.insert(_runs).values(**row))

    def last_runs(self, table: TableId, count: int = 10) -> list[RunEntry]:
        """The newest entries of a table's history, newest first."""
        query = (
            sa.select(_runs.c.entry)
            .where(
                (_runs.c.source == table.source)
                & (_runs.c.schema_name == table.schema)
                & (_runs.c.table_name == table.name)
            )
            .order_by(_runs.c.id.desc())
            .limit(count)
        )
        with self.transaction() as connection:
            return [RunEntry.from_json(json.loads(row.entry)) for row in connection.execute(query)]

    @property
    def clock(self) -> sa.ColumnElement[float]:
        """The database's own clock at this statement, in seconds since 1970 (UTC)."""
        dialect = self._engine.dialect.name
        if dialect == "sqlite":
            return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Double)
        if dialect in _MYSQL:
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

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction; database errors come out as ``StateError`` without URL or values.

        Raises:
            StateError: The database refuses. ``IntegrityError`` is let through for callers.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise self._unusable(error) from None

    def _create(self) -> None:
        try:
            self._create_tables()
        except SQLAlchemyError as error:
            raise self._unusable(error) from None
        with self.transaction() as connection:
            found = connection.execute(sa.select(sa.func.max(_format.c.version))).scalar()
        if found is None:
            try:
                with self.transaction() as connection:
                    connection.execute(sa.insert(_format).values(version=FORMAT))
            except IntegrityError:
                return
        elif found > FORMAT:
            raise StateError(
                f"the state store {self.shown_url} has format {found}; this version knows {FORMAT}",
                remedy="Use the version of tributary that wrote it, or a later one.",
                field="state.url",
            )

    def _create_tables(self) -> None:
        try:
            _metadata.create_all(self._engine)
        except SQLAlchemyError as error:
            # Two processes may create the tables at once; the loser looks again.
            if "already exists" not in str(error):
                raise
            _metadata.create_all(self._engine)

    def _unusable(self, error: SQLAlchemyError) -> StateError:
        cause = getattr(error, "orig", None) or error
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        return StateError(
            f"the state store {self.shown_url} is not usable: {reason}",
            remedy="Check state.url, that its database is up, and that the login may create "
            "and write tables.",
            field="state.url",
        )


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.password is not None:
            keep_out_of_logs(parsed.password)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        return sa.create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, ImportError, ValueError) as error:
        # The library's own text may repeat the URL, and with it the password.
        reason = f"no driver: {error}" if isinstance(error, ImportError) else "it is not a URL"
        raise StateError(
            f"state.url cannot be used: {reason}",
            remedy="Give a SQLAlchemy URL, such as sqlite:///state.db or "
            "postgresql+psycopg://user:${PASSWORD}@host/database, and install its driver.",
            field="state.url",
        ) from None


def _sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        try:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"the folder of the state store {url.database} cannot be made: {error.strerror}",
                remedy="Name a file in a folder that you can write as state.url.",
                field="state.url",
            ) from None
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        # Transactions are begun below; the driver must not begin its own.
        connection.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that turns from reading to writing fails at once when another one wrote
        # meanwhile, whatever the busy timeout; one that begins as a writer waits its turn.
        # Source: https://www.sqlite.org/lang_transaction.html
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _key(table: TableId, shard: str | None) -> sa.ColumnElement[bool]:
    return (
        (_tables.c.source == table.source)
        & (_tables.c.schema_name == table.schema)
        & (_tables.c.table_name == table.name)
        & (_tables.c.shard == (shard or ""))
    )


def _record(text: str, version: int) -> TableRecord:
    return TableRecord.from_json(json.loads(text), version=version)
