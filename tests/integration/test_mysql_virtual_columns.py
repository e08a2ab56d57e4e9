"""Virtual columns whose values differ by the session's time zone or date are refused."""

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
    # MariaDB adds no date here, and the column is refused all the same.
    "date_of": ("varchar(30)", "DATE_FORMAT(t, '%Y-%m-%d')"),
}
BY_CLOCK = {
    "as_datetime": ("datetime", "t"),
    "as_date": ("date", "t"),
    "time_cast": ("datetime", "CAST(t AS DATETIME)"),
    "alone": ("datetime", "TIMESTAMP(t)"),
    "first_of": ("datetime", "COALESCE(NULLIF(at, at), t)"),
    "either": ("varchar(30)", "IF(n = 1, at, t)"),
    "one_of_cases": ("varchar(30)", "CASE WHEN n = 1 THEN at ELSE t END"),
    "later_than": ("int", "at > t"),
    "in_between": ("int", "at BETWEEN '2000-01-01' AND t"),
    "of_seconds": ("datetime", "SEC_TO_TIME(n % 60)"),
    "elapsed": ("int", "TIMESTAMPDIFF(HOUR, t, at)"),
    "day_of": ("int", "TO_DAYS(t)"),
    "parsed_time": ("datetime", "STR_TO_DATE('10:00', '%H:%i')"),
}
SAME = {
    "together": ("datetime", "TIMESTAMP(DATE(at), t)"),
    "glued": ("datetime", "CAST(CONCAT(DATE(at), ' ', t) AS DATETIME)"),
    "added": ("datetime", "ADDTIME(at, t)"),
    "hours_of": ("int", "HOUR(t)"),
    "minutes": ("varchar(30)", "DATE_FORMAT(t, '%H:%i')"),
    "apart": ("int", "t > '10:00' AND at > '2020-01-01'"),
    "conditional": ("datetime", "CASE WHEN t > '10:00' THEN at END"),
    "hour_later": ("time", "t + INTERVAL 1 HOUR"),
    "parsed": ("datetime", "STR_TO_DATE(txt, '%Y-%m-%d %H:%i:%s')"),
    "scalar": ("datetime", "CAST(JSON_EXTRACT(doc, '$.at') AS DATETIME)"),
    "compared": ("int", "txt > at"),
    "other_case": ("datetime", "CASE txt WHEN 'paid' THEN at END"),
    "number": ("datetime", "CAST(n AS DATETIME)"),
    "of_day": ("date", "DATE(at)"),
    "joined": ("varchar(99)", "CONCAT(txt, YEAR(at))"),
}
"""Virtual columns whose values are the same in every time zone and on every date.

Each of the four dictionaries has type and expression by column. The values of `ON_BOTH` depend on
the time zone on both servers, those of `ON_MYSQL` on time zone or date on MySQL only, and those of
`BY_CLOCK` on the date on both servers.
"""


def test_virtual_columns_that_differ_by_time_zone_or_date_are_refused(lab: Lab) -> None:
    columns = {**ON_BOTH, **ON_MYSQL, **BY_CLOCK, **SAME}
    if lab.kind != MYSQL:
        del columns["date_of"]
    else:  # MariaDB's JSON_VALUE has no type
        columns["returned"] = ("datetime", "JSON_VALUE(doc, '$.at' RETURNING DATETIME)")
    virtual = ", ".join(
        f"{name} {kind} AS ({sql}) VIRTUAL" for name, (kind, sql) in columns.items()
    )
    text = "2024-02-29 23:30:00+02:00"
    table = lab.make(
        "item",
        "SET sql_mode = ''",
        "CREATE TABLE item (id int PRIMARY KEY, at datetime, txt varchar(64), doc json, n bigint,"
        " t time,"
        f" {virtual})",
        "INSERT INTO item (id, at, txt, doc, n, t) VALUES"
        f" (1, '2024-02-29 23:00:00', '{text}', '{{\"at\": \"{text}\"}}', 20240229233000, '11:00')",
    )
    read = [f"UNIX_TIMESTAMP({name})" if name in ON_BOTH else name for name in columns]
    found = []
    with lab.database.connect() as connection, connection.cursor() as cursor:
        for zone, date in (("+00:00", "2020"), ("+05:00", "2020"), ("+00:00", "2030")):
            cursor.execute(f"SET time_zone = '{zone}'")
            cursor.execute(f"SET timestamp = UNIX_TIMESTAMP('{date}-05-05 12:00')")
            cursor.execute(f"SELECT {', '.join(read)} FROM item")
            found.extend(cursor.fetchall())
    differing = {
        name for name, *values in zip(columns, *found, strict=True) if len(set(values)) > 1
    }
    assert differing == {*ON_BOTH, *(ON_MYSQL if lab.kind == MYSQL else ()), *BY_CLOCK}
    assert {column.name for column in table.columns if column.depends_on} == differing
