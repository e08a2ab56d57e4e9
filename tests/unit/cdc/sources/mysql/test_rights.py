"""The meaning of MySQL's answers to probes for rights, and the queries for foreign keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
import yaml
from pymysql.constants import CR, ER

from cdc.config import MysqlSourceConfig, parse
from cdc.errors import SourceError
from cdc.sources.mysql import innodb, rights
from cdc.sources.mysql.connection import Connections, Row, Session
from cdc.sources.servers import Role
from schemas.table import TableId
from tests.unit.cdc.configuration import minimal


class Scripted(Session):
    """A fake session with given answers: errors by statement, and rows of InnoDB's own tables."""

    kind = "mysql"

    def __init__(
        self,
        errors: dict[str, pymysql.MySQLError] | None = None,
        foreign: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._errors = errors or {}
        self._foreign = foreign
        self.asked: list[tuple[str, tuple[object, ...]]] = []

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        if error := self._errors.get(statement):
            raise error
        return [("admin@%",)]

    def named(self, statement: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        self.asked.append((statement, tuple(values)))
        return list(self._foreign)


class Scripts(Connections):
    """Connections of a source that always return the same session."""

    def __init__(self, session: Session) -> None:
        document = minimal()
        document["sources"]["shop"]["kind"] = "mysql"
        del document["sources"]["shop"]["primary"]["database"]
        config = parse(yaml.safe_dump(document)).sources["shop"]
        assert isinstance(config, MysqlSourceConfig)
        super().__init__("shop", config)
        self._session = session

    @contextmanager
    def open(self, role: Role, *, on_replica: bool = False, **_: Any) -> Iterator[Session]:
        try:
            yield self._session
        except pymysql.MySQLError as error:
            raise self.explain(error, role, on_replica=on_replica) from error


def test_a_server_without_a_binlog_lacks_no_right() -> None:
    """The server answers with error 1381; `check` has another line for ``log_bin`` OFF."""
    off = pymysql.OperationalError(ER.NO_BINARY_LOGGING, "You are not using binary logging")
    assert list(rights.of_server(Scripts(Scripted({"SHOW BINARY LOGS": off})))) == []


def test_mysqls_refusal_to_show_prepared_transactions_is_a_missing_right() -> None:
    """Error 1401 usually is a fatal error in an XA branch; here it means a missing right."""
    denied = pymysql.OperationalError(1401, "XAER_RMERR: Fatal error occurred")
    (lacking,) = rights.of_server(Scripts(Scripted({"XA RECOVER CONVERT XID": denied})))
    assert "lacks XA_RECOVER_ADMIN" in lacking.detail
    with pytest.raises(SourceError, match="XA transactions"):
        rights.prepared_branches(Scripted({"XA RECOVER CONVERT XID": denied}))
    lost = pymysql.OperationalError(CR.CR_SERVER_LOST, "Lost connection")
    with pytest.raises(pymysql.OperationalError):
        rights.prepared_branches(Scripted({"XA RECOVER CONVERT XID": lost}))


@pytest.mark.parametrize("code", [ER.UNKNOWN_ERROR, CR.CR_SERVER_LOST])
def test_a_probe_that_fails_is_one_line_and_takes_no_other_with_it(code: int) -> None:
    metrics = "SELECT 1 FROM information_schema.INNODB_METRICS LIMIT 1"
    denied = ER.SPECIFIC_ACCESS_DENIED_ERROR
    errors = {
        metrics: pymysql.OperationalError(code, "went wrong"),
        "SHOW BINARY LOGS": pymysql.OperationalError(denied, "Access denied"),
    }
    failed, lacking = rights.of_server(Scripts(Scripted(errors)))
    assert (failed.name, failed.status) == ("privileges admin", "error")
    assert "went wrong" in failed.detail
    assert failed.remedy
    assert "lacks REPLICATION CLIENT" in lacking.detail


def test_only_foreign_keys_of_the_table_are_asked_for() -> None:
    """Else, for each table of each run, a server would send the keys of all its tables."""
    table = TableId("s", "shop", "a-b")
    for written in ("shop/a-b", "shop/a@002db"):
        session = Scripted(foreign=[{"ID": "shop/gone", "FOR_NAME": written, "TYPE": 1}])
        found = innodb.read_cascades(session, "mariadb", table)
        assert found == [("gone", "CASCADE", "NO ACTION")]
        ((statement, values),) = session.asked
        assert "FOR_NAME = %s OR FOR_NAME LIKE %s" in statement
        assert values[1:] == ("shop/a-b", "shop/a@002db")


def test_foreign_keys_of_mysql_are_found_by_the_table() -> None:
    """INNODB_FOREIGN makes its names of the rows of all tables."""
    keys = [
        {"name": name, "on_delete": delete, "on_update": update}
        for name, delete, update in (
            ("none", "RESTRICT", "NO ACTION"),
            ("moved", "RESTRICT", "CASCADE"),
            ("emptied", "SET NULL", "SET DEFAULT"),
        )
    ]
    session = Scripted(foreign=keys)
    assert innodb.read_cascades(session, "mysql", TableId("s", "shop", "a-b")) == [
        ("emptied", "SET NULL", "NO ACTION"),
        ("moved", "NO ACTION", "CASCADE"),
    ]
    ((statement, values),) = session.asked
    assert "INNODB_FOREIGN" not in statement
    assert values == ("shop", "a-b")
