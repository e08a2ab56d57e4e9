"""Every client that reads PostgreSQL gets the client certificate, whose key is in PEM format."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.config import TableSettings
from cdc.errors import SourceError
from cdc.sources.postgres.source import PostgresSource
from stack.ports import HOST
from tests.integration.rigs.certificates import make_certificates
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import local_spark, open_source, read, source_config, table_id


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@contextmanager
def tls(database: Database, folder: Path) -> Iterator[None]:
    """Let the primary ask for client certificates and trust the test's authority, for a block."""
    run = database.stack.psql
    for name in ("server.key", "server.pem", "ca.pem"):
        text = base64.b64encode((folder / name).read_bytes()).decode()
        # The server itself writes them: nobody else may read its key.
        run(f"COPY (SELECT '{text}') TO PROGRAM 'umask 077; base64 -d > \"$(pwd)/test_{name}\"'")
    settings = {
        "ssl_key_file": "test_server.key",
        "ssl_cert_file": "test_server.pem",
        "ssl_ca_file": "test_ca.pem",
        "ssl": "on",
    }
    try:
        for name, value in settings.items():
            run(f"ALTER SYSTEM SET {name} = '{value}'")
        run("SELECT pg_reload_conf()")
        yield
    finally:
        for name in settings:
            run(f"ALTER SYSTEM RESET {name}")
        run("SELECT pg_reload_conf()")


def with_key(database: Database, folder: Path, key: str) -> PostgresSource:
    section = source_config(database).model_dump(mode="json", by_alias=True)
    primary = {
        "host": HOST,
        "port": section["primary"]["port"],
        "database": database.name,
        "sslmode": "verify-ca",
        "sslrootcert": str(folder / "ca.pem"),
        "sslcert": str(folder / "client.pem"),
        "sslkey": str(folder / key),
    }
    return open_source(database, primary=primary, replica=None)


def test_a_key_in_pem_is_read_by_every_client(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    for name in ("client.plain", "broken.key"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "broken.key").write_text("no key at all")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    with tls(database, tmp_path):
        source = with_key(database, tmp_path, "client.plain")
        table = source.table(table_id(database, "t"))
        schema = source.schema(table, TableSettings())
        assert sorted(row["id"] for row in read(spark, source, table, schema).collect()) == [1, 2]
        # Both clients do read it: another one in its place stops them.
        broken = with_key(database, tmp_path, "broken.key")
        with pytest.raises(SourceError, match="could not load private key"):
            broken.table(table_id(database, "t"))
        # The source knows already that there is no pooler, so only Spark's client connects.
        (tmp_path / "client.plain").write_text("no key at all")
        with pytest.raises(Exception, match=r"PSQLException|SSL key"):
            read(spark, source, table, schema).collect()
