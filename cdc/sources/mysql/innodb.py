"""The numbers that InnoDB gives to tables: which files the rows of a name lie in."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from cdc.errors import SourceError
from cdc.sources.mysql.connection import Session
from schemas.table import TableId

_TABLES = {"mysql": "INNODB_TABLES", "mariadb": "INNODB_SYS_TABLES"}
# Where the server writes some letters in two signs of its own, in place of their number.
_SHORT = ((0xC0, 0x5FF), (0x1E00, 0x1FFF), (0x2160, 0x217F), (0x24B0, 0x24EF), (0xFF20, 0xFF5F))


@dataclass(frozen=True)
class Stored:
    """Where the rows of a table lie.

    Args:
        ids: InnoDB's numbers by partition, under the empty name for a table without any. A rebuild
            and TRUNCATE give new ones, and no two servers share them.
        versions: How often columns were added or dropped in place since, by partition; None where
            the server does not count that.
    """

    ids: dict[str, int]
    versions: dict[str, int] | None

    @property
    def shown(self) -> str:
        """The numbers as text."""
        return _text(self.ids)

    @property
    def shown_versions(self) -> str | None:
        """The counts as text."""
        return None if self.versions is None else _text(self.versions)


def read_stored(session: Session, kind: str, tables: Collection[TableId]) -> dict[TableId, Stored]:
    """Where the rows of these tables lie, in one statement; without those of other engines.

    Raises:
        SourceError: The login lacks PROCESS.
    """
    if not tables:
        return {}
    databases = sorted({table.schema for table in tables})
    where = " OR ".join(["NAME LIKE %s"] * len(databases))
    patterns = [f"{_like(name)}/%" for name in databases]
    try:
        rows = session.named(
            f"SELECT * FROM information_schema.{_TABLES[kind]} WHERE {where}",  # noqa: S608
            patterns,
        )
    except pymysql.MySQLError as error:
        if error.args and error.args[0] == ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise _no_process(session) from error
        raise
    # Two tables whose names differ in letters of other alphabets only are watched together: a
    # change of either is seen in both, and none is missed.
    wanted = [(table, re.compile(file_pattern(table))) for table in tables]
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
    return {table: Stored(found, versions.get(table)) for table, found in ids.items()}


def file_pattern(table: TableId) -> str:
    """A regular expression for what InnoDB calls a table: ``database/table`` as names of files."""
    return f"{_pattern(table.schema)}/{_pattern(table.name)}"


def _plain(table: TableId) -> str:
    return "/".join("".join(map(_encoded, name)) for name in (table.schema, table.name))


def _pattern(name: str) -> str:
    return "".join(
        f"@(?:{ord(sign):04x}|[0-9A-Za-z]{{2}})" if _is_short(sign) else re.escape(_encoded(sign))
        for sign in name
    )


def _like(name: str) -> str:
    """The same as a pattern of LIKE; it may match more."""
    return "".join("@%" if _is_short(sign) else _encoded(sign) for sign in name)


def _encoded(sign: str) -> str:
    plain = sign.isascii() and (sign.isalnum() or sign == "_")
    return sign if plain else f"@{ord(sign):04x}"


def _is_short(sign: str) -> bool:
    return any(first <= ord(sign) <= last for first, last in _SHORT)


def _text(numbers: dict[str, int]) -> str:
    return ",".join(f"{part}:{n}" if part else str(n) for part, n in sorted(numbers.items()))


def _no_process(session: Session) -> SourceError:
    user = str(session.value("SELECT current_user()"))
    name, _, host = user.rpartition("@")
    return SourceError(
        f"{user} may not see which files InnoDB keeps tables in, which is how a table that was"
        " replaced is told from one that was not",
        remedy=f"GRANT PROCESS ON *.* TO '{name}'@'{host}';",
        field="credentials.admin",
    )
