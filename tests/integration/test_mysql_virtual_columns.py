"""Virtual columns whose values differ between sessions with other time zones are refused."""

from __future__ import annotations

import pytest

from stack.mysql_software import MYSQL
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab

pytestmark = pytest.mark.breadth

ON_BOTH = {"of_time": ("timestamp", "at")}
ON_MYSQL = {
    "text": ("datetime", "txt"),
    "one_of_two": ("datetime", "IF(1, txt, at)"),
    "made_date": ("date", "CAST(txt AS DATE)"),
    "unquoted": ("datetime", "CAST(JSON_UNQUOTE(JSON_EXTRACT(doc, '$.at')) AS DATETIME)"),
    "an_hour": ("int", "HOUR(txt)"),
    "replaced": ("datetime", "CAST(REPLACE(JSON_EXTRACT(doc, '$.at'), '\"', '') AS DATETIME)"),
    "one_case": ("datetime", "CASE WHEN n > 0 THEN txt ELSE at END"),
    "days": ("int", "DATEDIFF(txt, '2020-01-01')"),
    "later": ("varchar(30)", "txt + INTERVAL 1 HOUR"),
    "shown": ("varchar(30)", "DATE_FORMAT(txt, '%Y-%m-%d')"),
    "literal": ("datetime", "'2024-02-29 23:30:00+02:00'"),
}
SAME = {
    "parsed": ("datetime", "STR_TO_DATE(txt, '%Y-%m-%d %H:%i:%s')"),
    "scalar": ("datetime", "CAST(JSON_EXTRACT(doc, '$.at') AS DATETIME)"),
    "compared": ("int", "txt > at"),
    "other_case": ("datetime", "CASE txt WHEN 'paid' THEN at END"),
    "number": ("datetime", "CAST(n AS DATETIME)"),
    "of_day": ("date", "DATE(at)"),
    "joined": ("varchar(99)", "CONCAT(txt, YEAR(at))"),
}
"""By column, its type and expression: which differ on both servers, on MySQL, and on neither."""


def test_virtual_columns_with_another_value_in_another_time_zone_are_refused(lab: Lab) -> None:
    columns = {**ON_BOTH, **ON_MYSQL, **SAME}
    if lab.kind == MYSQL:  # MariaDB's JSON_VALUE has no type
        columns["returned"] = ("datetime", "JSON_VALUE(doc, '$.at' RETURNING DATETIME)")
    virtual = ", ".join(
        f"{name} {kind} AS ({sql}) VIRTUAL" for name, (kind, sql) in columns.items()
    )
    text = "2024-02-29 23:30:00+02:00"
    table = lab.make(
        "item",
        "SET sql_mode = ''",
        "CREATE TABLE item (id int PRIMARY KEY, at datetime, txt varchar(64), doc json, n bigint,"
        f" {virtual})",
        "INSERT INTO item (id, at, txt, doc, n) VALUES"
        f" (1, '2024-02-29 23:00:00', '{text}', '{{\"at\": \"{text}\"}}', 20240229233000)",
    )
    read = [f"UNIX_TIMESTAMP({name})" if name in ON_BOTH else name for name in columns]
    found = []
    with lab.database.connect() as connection, connection.cursor() as cursor:
        for zone in ("+00:00", "+05:00"):
            cursor.execute(f"SET time_zone = '{zone}'")
            cursor.execute(f"SELECT {', '.join(read)} FROM item")
            found.extend(cursor.fetchall())
    differing = {name for name, one, other in zip(columns, *found, strict=True) if one != other}
    assert differing == {*ON_BOTH, *(ON_MYSQL if lab.kind == MYSQL else ())}
    assert {column.name for column in table.columns if column.depends_on} == differing
