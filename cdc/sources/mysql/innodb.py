"""Reads from InnoDB's catalog: the files of tables' rows, and foreign keys.

A login with the right PROCESS sees all rows of InnoDB's catalog tables. The standard catalog tables
silently leave out objects on which a login has no right.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import ER

from cdc.errors import SourceError
from cdc.sources.mysql.accounts import account_sql, current_account
from cdc.sources.mysql.connection import Session
from schemas.table import TableId

_TABLES = {"mysql": "INNODB_TABLES", "mariadb": "INNODB_SYS_TABLES"}
# MySQL before 8.0.29 has no TOTAL_ROW_VERSIONS, so it is not asked for by name.
_OF_TABLES = {"mysql": "*", "mariadb": "NAME, TABLE_ID"}
_FOREIGN = """
SELECT CONSTRAINT_NAME AS name, DELETE_RULE AS on_delete, UPDATE_RULE AS on_update
FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""
_ON_DELETE = ((1, "CASCADE"), (2, "SET NULL"))
_ON_UPDATE = ((4, "CASCADE"), (8, "SET NULL"))
_CHANGES_ROWS = sum(bit for bit, _ in (*_ON_DELETE, *_ON_UPDATE))
_RULES = {rule for _, rule in (*_ON_DELETE, *_ON_UPDATE)}
_NO_ACTION = "NO ACTION"
# Ranges in which the server writes some letters by two characters of its own instead of their code.
_SHORT = ((0xC0, 0x5FF), (0x1E00, 0x1FFF), (0x2160, 0x217F), (0x24B0, 0x24EF), (0xFF20, 0xFF5F))


@dataclass(frozen=True)
class Stored:
    """InnoDB's ids of the files that contain a MySQL or MariaDB table's rows.

    Args:
        ids: InnoDB's id of each partition, by the partition's name. A table without partitions
            counts as one partition with an empty name. A rebuild or TRUNCATE creates new
            files and changes the ids. The ids on a replica differ from the ids on the primary.
        altered: A text that differs if a column was added in place since the table got its files,
            even if the column was dropped again. None if the server does not show it.
    """

    ids: dict[str, int]
    altered: str | None

    @property
    def shown(self) -> str:
        """InnoDB's id of each partition, as one string such as ``p0:7,p1:8``."""
        return _numbers_of_partitions(self.ids)


def read_stored(session: Session, kind: str, tables: Collection[TableId]) -> dict[TableId, Stored]:
    """Return, for each table, the ids by which InnoDB lists it, and the counts of column changes.

    One statement reads the facts of all tables. MySQL opens each table of the server for it,
    whichever are asked for, so it is only for tables that `cdc.sources.mysql.own_files` cannot
    read. MariaDB reads a table of its own from end to end.

    Raises:
        SourceError: The login lacks PROCESS.
    """
    if not tables:
        return {}
    where, values = _of_databases({table.schema for table in tables})
    rows = catalog_rows(session, f"{_TABLES[kind]} WHERE {where}", values, columns=_OF_TABLES[kind])
    # Two tables whose names differ only in letters of other alphabets are watched together: a
    # change of either table shows in both, so no change is missed.
    wanted = [
        (table, re.compile(file_pattern(table)))
        for table in tables
        if any(map(_is_short, table.schema + table.name))
    ]
    by_name = {_plain(table): table for table in tables}
    ids: defaultdict[TableId, dict[str, int]] = defaultdict(dict)
    versions: defaultdict[TableId, dict[str, int]] = defaultdict(dict)
    for row in rows:
        # MariaDB writes #P#; in names of tables a number sign is encoded.
        name, _, part = str(row["NAME"]).replace("#P#", "#p#").partition("#p#")
        known = by_name.get(name)
        owners = [known] if known else [table for table, one in wanted if one.fullmatch(name)]
        for table in owners:
            while part in ids[table]:
                part += "'"
            ids[table][part] = int(row["TABLE_ID"])
            if row.get("TOTAL_ROW_VERSIONS") is not None:
                versions[table][part] = int(row["TOTAL_ROW_VERSIONS"])
    return {
        table: Stored(found, _numbers_of_partitions(versions[table]) if table in versions else None)
        for table, found in ids.items()
    }


def _of_databases(databases: Collection[str]) -> tuple[str, list[str]]:
    """Return the condition, and its values, for the rows of all files in these databases.

    The condition can be true for other files, too. The server compares it with each of its files,
    so it has a list, which the server searches by halves, and a LIKE for few databases only.
    """
    short = sorted(name for name in databases if any(map(_is_short, name)))
    plain = sorted(set(databases).difference(short))
    # The comparison uses the column's collation. No equal name is unequal by a collation.
    conditions = [f"SUBSTRING_INDEX(NAME, '/', 1) IN ({', '.join(['%s'] * len(plain))})"]
    likes = ["NAME LIKE %s"] * len(short)
    return (
        " OR ".join([*(conditions if plain else ()), *likes]),
        [*(_encoded_name(name) for name in plain), *(f"{_like(name)}/%" for name in short)],
    )


def read_cascades(session: Session, kind: str, table: TableId) -> list[tuple[str, str, str]]:
    """Return the InnoDB foreign keys by which changes of another table change this table.

    Returns:
        For each foreign key, its name, its ON DELETE action and its ON UPDATE action.

    Raises:
        SourceError: The login lacks PROCESS, which only MariaDB requires.
    """
    found = (_cascades_of_mysql if kind == "mysql" else _cascades_of_mariadb)(session, table)
    return sorted(found)


def _cascades_of_mysql(session: Session, table: TableId) -> Iterator[tuple[str, str, str]]:
    """Yield the results of :func:`read_cascades` for a MySQL table.

    The server finds the table's foreign keys by an index. For its table INNODB_FOREIGN it would
    read those of all tables.
    """
    for row in session.named(_FOREIGN, (table.schema, table.name)):
        rules = (row["on_delete"], row["on_update"])
        if any(rule in _RULES for rule in rules):
            delete, update = (rule if rule in _RULES else _NO_ACTION for rule in rules)
            yield str(row["name"]), delete, update


def _cascades_of_mariadb(session: Session, table: TableId) -> Iterator[tuple[str, str, str]]:
    """Yield the results of :func:`read_cascades` for a MariaDB table.

    The standard's view hides foreign keys from a login that may only read.
    """
    # The server writes names of files, or plain names. The condition selects the possible matches,
    # so that the server does not send the foreign keys of all its tables for each table.
    plain, encoded = f"{table.schema}/{table.name}", re.compile(file_pattern(table))
    where = "TYPE & %s <> 0 AND (FOR_NAME = %s OR FOR_NAME LIKE %s)"
    patterns = plain, f"{_like(table.schema)}/{_like(table.name)}"
    for row in catalog_rows(
        session, f"INNODB_SYS_FOREIGN WHERE {where}", [_CHANGES_ROWS, *patterns]
    ):
        if row["FOR_NAME"] == plain or encoded.fullmatch(str(row["FOR_NAME"])):
            bits = int(row["TYPE"])
            name = str(row["ID"]).partition("/")[2]
            yield name, _rule(bits, _ON_DELETE), _rule(bits, _ON_UPDATE)


def _rule(bits: int, rules: Sequence[tuple[int, str]]) -> str:
    """Return a foreign key's action, such as CASCADE, from the bits in which InnoDB stores it."""
    return next((name for bit, name in rules if bits & bit), _NO_ACTION)


def catalog_rows(
    session: Session, place: str, values: Sequence[object], *, columns: str = "*"
) -> list[dict[str, Any]]:
    """Return rows of one of InnoDB's catalog tables of MySQL or MariaDB.

    Args:
        session: A session.
        place: The SQL after FROM: the catalog table's name and a WHERE clause.
        values: The values for the ``%s`` of the clause, in order.
        columns: The names of the wanted columns.

    Raises:
        SourceError: The login lacks PROCESS.
    """
    try:
        return session.named(f"SELECT {columns} FROM information_schema.{place}", values)  # noqa: S608
    except pymysql.MySQLError as error:
        if error.args and error.args[0] == ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise _no_process(session) from error
        raise


def file_pattern(table: TableId) -> str:
    """Return a regular expression that matches ``database/table`` as InnoDB encodes both names."""
    return f"{_pattern(table.schema)}/{_pattern(table.name)}"


def _plain(table: TableId) -> str:
    """Return ``database/table`` as InnoDB encodes names without short forms (`_SHORT`)."""
    return "/".join(map(_encoded_name, (table.schema, table.name)))


def _pattern(name: str) -> str:
    """Return a regular expression that matches a name as InnoDB encodes it."""
    return "".join(
        f"@(?:{ord(sign):04x}|[0-9A-Za-z@]{{2}})" if _is_short(sign) else re.escape(_encoded(sign))
        for sign in name
    )


def _like(name: str) -> str:
    """Return a LIKE pattern that matches a name as InnoDB encodes it, and perhaps other names."""
    return "".join("@%" if _is_short(sign) else _encoded(sign) for sign in name)


def _encoded_name(name: str) -> str:
    """Return a name as InnoDB writes it, if it writes no letter of it in short form (`_SHORT`)."""
    return "".join(map(_encoded, name))


def _encoded(sign: str) -> str:
    """Return a character as InnoDB writes it in file names, for example ``@0024`` for $."""
    plain = sign.isascii() and (sign.isalnum() or sign == "_")
    return sign if plain else f"@{ord(sign):04x}"


def _is_short(sign: str) -> bool:
    """Whether InnoDB can encode a letter in short form: ``@`` and two characters (`_SHORT`)."""
    return any(first <= ord(sign) <= last for first, last in _SHORT)


def _numbers_of_partitions(numbers: dict[str, int]) -> str:
    """Return the given numbers of InnoDB's partitions as one string, for example ``p0:7,p1:8``."""
    return ",".join(f"{part}:{n}" if part else str(n) for part, n in sorted(numbers.items()))


def _no_process(session: Session) -> SourceError:
    """Return the error for a MySQL or MariaDB login that lacks PROCESS."""
    account = current_account(session)
    return SourceError(
        f"{account_sql(account)} may not read InnoDB's metadata of tables: their files,"
        " which show whether a table was replaced, and their foreign keys",
        remedy=f"GRANT PROCESS ON *.* TO {account_sql(account)};",
        field="credentials.admin",
    )
