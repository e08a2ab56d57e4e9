"""SQL for ranges of MySQL keys, and the names of tables inside InnoDB."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import PermanentError, ReplicaError, SnapshotLostError, SourceError
from cdc.sources.mysql.accounts import account_sql
from cdc.sources.mysql.innodb import file_pattern
from cdc.sources.mysql.keys import key_types, literal, predicate
from cdc.sources.mysql.reader import explain_failure, is_from_server
from cdc.sources.source_facts import KeyRange, SourceColumn, SourceTable
from schemas.table import TableId
from schemas.types_mysql import MysqlType

INT, TEXT, BYTES = MysqlType("int"), MysqlType("varchar"), MysqlType("binary")
TABLE = TableId("shop", "db", "t")


@pytest.mark.parametrize("kind", ["json", "point", "geomcollection"])
def test_documents_and_geometries_are_no_keys(kind: str) -> None:
    column = SourceColumn("c", MysqlType.parse(kind), False, False, None)
    table = SourceTable(TABLE, "table", (column,), (), (), (), "mysql")
    with pytest.raises(SourceError, match=f"has type {kind}, which cannot be cut into ranges"):
        key_types(table, ["c"])


def test_a_row_comparison_is_spelled_out() -> None:
    key_range = KeyRange(("1", "00ff"), ("2", "01"))
    assert predicate(key_range, ["k0", "k1"], [INT, BYTES]) == (
        "k0 >= 1 AND (k0 > 1 OR (k0 = 1 AND k1 >= x'00ff'))"
        " AND k0 <= 2 AND (k0 < 2 OR (k0 = 2 AND k1 < x'01'))"
    )
    assert predicate(KeyRange(None, ("-5",)), ["k0"], [INT]) == "k0 < -5"
    assert predicate(KeyRange(), ["k0"], [INT]) == "1 = 1"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=2))
def test_ranges_that_meet_share_no_row_and_leave_none(ends: list[tuple[int, int]]) -> None:
    def inside(key_range: KeyRange, row: tuple[int, int]) -> bool:
        text = predicate(key_range, ["a", "b"], [INT, INT])
        spelled = text.replace(" OR ", " or ").replace(" AND ", " and ")
        plain = re.sub(r"(?<![<>])=", "==", spelled)
        return bool(eval(plain, {"a": row[0], "b": row[1]}))

    points = [(str(a), str(b)) for a, b in sorted(set(ends))]
    edges = [None, *points, None]
    ranges = [KeyRange(*pair) for pair in itertools.pairwise(edges)]
    for row in [(a, b) for a in range(4) for b in range(4)]:
        assert sum(inside(one, row) for one in ranges) == 1


@given(st.text())
def test_no_text_ends_its_literal(text: str) -> None:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        return
    assert re.fullmatch(r"_utf8mb4 x'[0-9a-f]*'", literal(TEXT, text))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1 OR 1"),
        ("int", ""),
        ("binary", "0"),
        ("datetime", "2024-01-01' OR '1"),
        ("decimal", "1e"),
    ],
)
def test_what_is_no_bound_is_refused(kind: str, text: str) -> None:
    with pytest.raises(SourceError, match="is not a bound"):
        literal(MysqlType(kind), text)


@pytest.mark.parametrize(
    ("kind", "text", "written"),
    [
        ("datetime", "2024-01-01 00:00:00.000001", "'2024-01-01 00:00:00.000001'"),
        ("date", "0000-00-00", "'0000-00-00'"),
        ("time", "-838:59:59", "'-838:59:59'"),
        ("double", "-1.5e-300", "-1.5e-300"),
        ("enum", "3", "3"),
    ],
)
def test_bounds_are_constants_of_their_type(kind: str, text: str, written: str) -> None:
    assert literal(MysqlType(kind), text) == written


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("plain_1", "db/plain_1"),
        ("a-b", "db/a@002db"),
        ("a#x中", "db/a@0023x@4e2d"),
        ("é", "db/@0p"),
        ("Ｆull", "db/@F@ull"),  # noqa: RUF001 - letters as wide as Chinese ones
    ],
)
def test_names_of_tables_are_found_among_files(name: str, stored: str) -> None:
    pattern = file_pattern(TableId("shop", "db", name))
    assert re.fullmatch(pattern, stored)
    assert not re.fullmatch(pattern, stored + "x")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Subquery returns more than 1 row", ReplicaError),
        ("SELECT command denied to user 'a'@'%' for table `db`.`t`", PermanentError),
        ("Access denied for user 'a'@'%' to database 'db'", PermanentError),
        ("Access denied for user 'a'@'%' (using password: YES)", SourceError),
        ("Table definition has changed, please retry transaction", SnapshotLostError),
        ("Lost connection", SourceError),
    ],
)
def test_failed_reads_are_told_apart(said: str, kind: type[SourceError]) -> None:
    text = f"java.sql.SQLException: (conn=12) {said}\n\tat org.mariadb.jdbc.export.X.y(X.java:1)"
    assert is_from_server(text)
    error = explain_failure(TABLE, text)
    assert type(error) is kind
    assert "shop:db.t" in error.message


def test_accounts_are_quoted() -> None:
    assert account_sql(("o'brien", "10.%")) == "'o''brien'@'10.%'"
