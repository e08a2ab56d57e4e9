"""Which facts about MySQL's tables come from the dictionary's indexes, and which from InnoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pymysql
from pymysql.constants import ER

from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.own_files import read_own_files
from schemas.table import TableId

SEEN = ("id", "note", "DB_TRX_ID", "DB_ROLL_PTR")


class Dictionary:
    """A session on a server with these files; the fake InnoDB has a table for each given name.

    Args:
        files: The ids of files by the names of tablespaces.
        columns: The columns of each table, with the hidden ones; of each other table, `SEEN`.
        partitions: The number of each table's partitions.
        gone: Tables that do not exist.
    """

    kind = "mysql"

    def __init__(
        self,
        files: dict[str, int],
        *,
        columns: dict[str, Sequence[str]] | None = None,
        partitions: dict[str, int] | None = None,
        gone: Sequence[str] = (),
    ) -> None:
        self.files = files
        self.columns, self.partitions, self.gone = columns or {}, partitions or {}, gone
        self.asked: list[tuple[str, list[object]]] = []

    def value(self, statement: str, values: Sequence[object]) -> int:
        self.asked.append((statement, [*values]))
        return self.partitions[str(values[1])]

    def named(self, statement: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        self.asked.append((statement, [*values]))
        if statement.startswith("SHOW EXTENDED"):
            name = statement.split("`")[-2]
            if name in self.gone:
                raise pymysql.ProgrammingError(ER.NO_SUCH_TABLE, "no such table")
            shown = (one.partition(" as ") for one in self.columns.get(name, SEEN))
            return [{"Field": field, "Extra": extra} for field, _, extra in shown]
        if "INNODB_TABLESPACES_BRIEF" in statement:
            return [{"NAME": name, "SPACE": number} for name, number in self.files.items()]
        names = ("shop/t", "shop/parted#p#p0", "shop/parted#p#p1", "shop/a@002fb", "shop/a@0023b")
        return [
            {"NAME": name, "TABLE_ID": number, "TOTAL_ROW_VERSIONS": 3}
            for number, name in enumerate(names, 100)
        ]

    @property
    def full_lists(self) -> int:
        """How often the list of all tables was asked for."""
        return sum("INNODB_TABLES " in statement for statement, _ in self.asked)


def read(session: Dictionary, *names: str, partitioned: bool = False) -> dict[str, tuple[str, Any]]:
    tables = {TableId("shop", "shop", name): partitioned for name in names}
    found = read_own_files(cast("Session", session), tables)
    return {table.name: (one.shown, one.altered) for table, one in found.items()}


def test_tables_with_files_of_their_own_are_found_by_name() -> None:
    session = Dictionary({"shop/t": 7, "shop/\u0436-b": 8, "shop/other": 9})
    assert read(session, "t", "\u0436-b") == {
        "t": ("7", "4 columns"),
        "\u0436-b": ("8", "4 columns"),
    }
    assert session.full_lists == 0
    (statement, values), *_ = session.asked
    assert statement.endswith("WHERE NAME IN (%s, %s)")
    assert values == ["shop/t", "shop/\u0436-b"]


def test_a_statement_reads_at_most_a_hundred_tables() -> None:
    names = [f"t{number:03}" for number in range(101)]
    session = Dictionary({f"shop/{name}": 7 for name in names})
    assert read(session, *names).keys() == set(names)
    asked = [len(values) for statement, values in session.asked if "BRIEF" in statement]
    assert asked == [100, 1]


def test_a_column_that_came_and_went_is_still_counted() -> None:
    """But not the hidden one of an index on an expression, which is in no file."""
    before = read(Dictionary({"shop/t": 7}), "t")
    for columns, counts in (
        ((*SEEN, "!hidden!ix!0!0 as VIRTUAL GENERATED", "sum as STORED GENERATED"), False),
        ((*SEEN, "!hidden!_dropped_v2_p4_c"), True),
        ((*SEEN, "made as DEFAULT_GENERATED"), True),
    ):
        now = read(Dictionary({"shop/t": 7}, columns={"t": columns}), "t")
        assert (now != before) is counts, columns


def test_innodb_lists_all_tables_only_for_those_that_indexes_do_not_tell() -> None:
    listed = {"t": ("100", "3")}
    shared = Dictionary({"shop/u": 8})
    assert read(shared, "t", "u") == {**listed, "u": ("8", "4 columns")}
    unseen = Dictionary({"shop/t": 7, "shop/u": 8}, columns={"t": ("id", "note")})
    assert read(unseen, "t", "u") == {**listed, "u": ("8", "4 columns")}
    # A name that can be that of a file of another table.
    alike = Dictionary({"shop/a/b": 7, "shop/a#b": 8})
    assert read(alike, "a/b", "a#b") == {"a/b": ("103", "3"), "a#b": ("104", "3")}
    assert [shared.full_lists, unseen.full_lists, alike.full_lists] == [1, 1, 1]


def test_each_partition_has_a_file() -> None:
    files = {"shop/parted#p#p0": 7, "shop/parted#P#a,b#SP#s": 8, "shop/parted$": 9}
    session = Dictionary(files, partitions={"parted": 2})
    assert read(session, "parted", partitioned=True) == {
        "parted": ("a@002cb#SP#s:8,p0:7", "4 columns")
    }
    assert session.full_lists == 0
    (statement, values), *_ = session.asked
    assert statement.endswith("WHERE NAME >= %s AND NAME < %s")
    assert values == ["shop/parted#", "shop/parted$"]
    # One of three is in a file with other tables.
    session = Dictionary(files, partitions={"parted": 3})
    assert read(session, "parted", partitioned=True) == {"parted": ("p0:101,p1:102", "p0:3,p1:3")}
    assert session.full_lists == 1


def test_a_table_that_is_gone_meanwhile_takes_no_other_with_it() -> None:
    session = Dictionary({"shop/u": 8, "shop/v": 9}, gone=["v"])
    assert read(session, "u", "v") == {"u": ("8", "4 columns"), "v": ("9", "0 columns")}
    assert session.full_lists == 0


def test_nothing_is_asked_for_no_table() -> None:
    session = Dictionary({})
    assert read(session) == {}
    assert session.asked == []
