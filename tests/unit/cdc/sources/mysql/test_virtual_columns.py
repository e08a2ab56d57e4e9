"""Virtual columns whose values depend on more than the row, by their expressions in the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.config import TableSettings
from cdc.sources.mysql.table_facts import Described
from cdc.sources.mysql.virtual_columns import session_bound
from cdc.sources.selection import lake_columns
from cdc.sources.source_facts import SourceTable
from schemas.errors import SchemaError
from schemas.table import TableId

KINDS = {"id": "int(11)", "born": "date", "made": "timestamp", "at": "time", "Text": "varchar(9)"}


def row(name: str, shown: str, expression: str = "", extra: str = "") -> dict[str, Any]:
    """A column as the catalog shows it; a generated one is virtual unless ``extra`` says else."""
    facts = {"name": name, "shown": shown, "value": None, "nullable": "YES", "charset": None}
    extra = extra or ("VIRTUAL GENERATED" if expression else "")
    return {**facts, "collation": None, "expression": expression, "extra": extra}


PLAIN = [row(*one) for one in KINDS.items()]


def depends(expression: str, extra: str = "") -> str | None:
    return session_bound([*PLAIN, row("v", "int(11)", expression, extra)]).get("v")


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("cast(`made` as date)", "the session's time zone (column made)"),
        ("hour(`MADE`)", "the session's time zone (column made)"),
        ("DATE(made)", "the session's time zone (column made)"),
        ("timestampdiff(YEAR,`born`,curdate())", "the time of the reading (curdate)"),
        ("`born` < current_timestamp()", "the time of the reading (current_timestamp)"),
        ("CURRENT_DATE", "the time of the reading (current_date)"),
        ("LOCALTIME", "the time of the reading (localtime)"),
        ("utc_timestamp()", "the time of the reading (utc_timestamp)"),
        ("unix_timestamp(`born`)", "the session's time zone (unix_timestamp)"),
        ("from_unixtime(`id`)", "the session's time zone (from_unixtime)"),
        ("convert_tz(`born`,'SYSTEM','+00:00')", "the session's time zone (convert_tz)"),
        ("dayname(`born`)", "the session's lc_time_names (dayname)"),
        ("date_format(`born`,'%Y %M')", "the session's lc_time_names (date_format)"),
        (r"date_format(`born`,_utf8mb4\'%W\')", "the session's lc_time_names (date_format)"),
        ("date_format(`born`,`Text`)", "the session's lc_time_names (date_format)"),
        ("week(`born`)", "the session's default_week_format (week)"),
        ("WEEK(least(`born`,1))", "the session's default_week_format (week)"),
        ("rand() * `id`", "chance (rand)"),
        ("uuid()", "chance (uuid)"),
        ("concat(`Text`,current_user())", "the session (current_user)"),
        ("database()", "the session (database)"),
        ("`id` + @@auto_increment_increment", "the session (a variable)"),
        (r"concat('it\'s ',`made`)", "the session's time zone (column made)"),
        (r"concat(_utf8mb4\'it\\\'s \',`made`)", "the session's time zone (column made)"),
    ],
)
def test_what_an_expression_depends_on_besides_the_row(expression: str, what: str) -> None:
    assert depends(expression) == what
    assert depends(expression, "STORED GENERATED") is None


@pytest.mark.parametrize(
    "expression",
    [
        "`id` + 1",
        "cast(`born` as datetime)",
        "hour(`at`)",
        "date_format(`born`,'%Y-%m')",
        r"date_format(`born`,_utf8mb4\'%Y-%m-%d %%M\')",
        "week(`born`,3)",
        "yearweek(`born`)",
        "timestampdiff(YEAR,`born`,'2024-01-01')",
        "concat(`Text`,'now() @@x `made` ''curdate()''')",
        r"concat(`Text`,'it\'s \\\\ now()')",
        r"concat(`Text`,_utf8mb4\'made it\\\'s now()\')",
        "json_unquote(json_extract(`Text`,'$.user'))",
        "if(`Text` = 'user',1,0)",
    ],
)
def test_what_depends_on_the_row_only_is_taken(expression: str) -> None:
    assert depends(expression) is None


@pytest.mark.parametrize(
    ("shown", "expression"),
    [
        ("datetime", "`Text`"),
        ("date", "`Text`"),
        ("time", "if(1,`Text`,`born`)"),
        ("datetime", r"_utf8mb4\'2024-02-29 23:30:00+02:00\'"),
        ("datetime(6)", "cast(`Text` as datetime(6))"),
        ("date", r"cast(json_unquote(json_extract(`doc`,_utf8mb4\'$.at\')) as date)"),
        ("varchar(99)", "cast(cast(`Text` as datetime) as char charset utf8mb4)"),
        ("int", "hour(`Text`)"),
        ("int", "extract(hour from concat(`Text`,'+02:00'))"),
        ("varchar(99)", "(`Text` + interval 1 hour)"),
        ("int", r"(to_days(`Text`) - to_days(_utf8mb4\'2020-01-01\'))"),
        ("int", r"(dayofmonth(`Text`) > 5)"),
        ("datetime", r"cast(replace(json_extract(`doc`,_utf8mb4\'$.at\'),'\"','') as datetime)"),
        ("datetime", r"concat(json_extract(`doc`,_utf8mb4\'$.at\'))"),
        ("datetime", r"cast(json_extract(`doc`,_utf8mb4\'$.at\') as char charset utf8mb4)"),
        ("tinyint", "(cast(`Text` as date) = `date`)"),
        ("varchar(9)", "time_format(`Text`,'%H')"),
        ("datetime", "cast(concat(`born`,' 10:00','+02:00') as datetime)"),
        ("date", "(case when (`id` = 1) then `Text` else `born` end)"),
        ("date", "(case `id` when 1 then `Text` end)"),
    ],
)
def test_a_text_that_mysql_reads_as_a_date_depends_on_the_time_zone(
    shown: str, expression: str
) -> None:
    rows = [*PLAIN, row("doc", "json"), row("date", "date"), row("v", shown, expression)]
    assert session_bound(rows) == {
        "v": "the session's time zone (a text is read as a date, and can have an offset)"
    }
    assert session_bound(rows, of_mariadb=True) == {}


@pytest.mark.parametrize(
    ("shown", "expression"),
    [
        ("datetime", r"str_to_date(`Text`,_utf8mb4\'%Y-%m-%d %H:%i:%s\')"),
        ("date", "cast(str_to_date(`Text`,'%Y-%m-%d') as date)"),
        ("datetime", r"cast(json_extract(`doc`,_utf8mb4\'$.at\') as datetime)"),
        ("datetime", r"json_value(`doc`, _utf8mb4\'$.at\' returning datetime)"),
        ("datetime", r"json_value(`Text`, _utf8mb4\'$.at\' returning datetime)"),
        ("int", r"(`born` > _utf8mb4\'2024-02-29 23:30:00+02:00\')"),
        ("int", r"(`Text` > DATE\'2024-02-29\')"),
        ("date", r"if((`Text` = _utf8mb4\'x\'),`born`,NULL)"),
        ("date", "(`born` + interval length(`Text`) day)"),
        ("varchar(99)", "concat(`Text`,year(`born`),cast(`born` as datetime))"),
        ("datetime", "cast(`id` as datetime)"),
        ("date", r"cast(concat(`id`,_utf8mb4\'-01-01\') as date)"),
        ("date", r"(case `Text` when _utf8mb4\'paid\' then `born` end)"),
        ("date", r"(case when (`Text` = _utf8mb4\'x\') then `born` else NULL end)"),
        ("datetime", r"cast(if(1,json_extract(`doc`,_utf8mb4\'$.at\'),NULL) as datetime)"),
    ],
)
def test_a_text_that_becomes_no_date_by_its_offset_is_taken(shown: str, expression: str) -> None:
    assert session_bound([*PLAIN, row("doc", "json"), row("v", shown, expression)]) == {}


OF_TIMES = [row("dt", "datetime"), row("begins", "time"), row("stamp", "timestamp")]


@pytest.mark.parametrize(
    ("shown", "expression"),
    [
        ("datetime", "`at`"),
        ("date", "`at`"),
        ("datetime", "cast(`at` as datetime)"),
        ("date", "cast(`at` as date)"),
        ("datetime", "timestamp(`at`)"),
        ("datetime", "timestamp(`at`,`begins`)"),
        ("datetime", "coalesce(`dt`,`at`)"),
        ("varchar(30)", "coalesce(`dt`,`at`)"),
        ("datetime", "if((`id` > 1),`at`,`dt`)"),
        ("int", "(`dt` > `at`)"),
        ("int", "`born` between `at` and `dt`"),
        ("int", "`at` in (1,`dt`)"),
        ("int", "(case `dt` when `at` then 1 end)"),
        ("varchar(30)", "(case when (`id` = 1) then `dt` else `at` end)"),
        ("varchar(30)", "case when `id` = -1 then `dt` else `at` end"),
        ("datetime", "sec_to_time(`id`)"),
        ("datetime", "cast(time(`dt`) as datetime)"),
        ("int", "timestampdiff(HOUR,`at`,`begins`)"),
        ("int", "to_days(`at`)"),
        ("int", "extract(day from `at`)"),
        ("varchar(9)", "date_format(`at`,'%Y-%m-%d')"),
        ("datetime", "str_to_date(`Text`,'%H:%i')"),
        ("int", r"(`dt` > TIME\'10:00:00\')"),
        ("varchar(30)", "(`at` + interval 1 day)"),
        ("datetime", "(`at` + interval 1 hour)"),
        ("datetime", "addtime(`at`,'1:00')"),
    ],
)
@pytest.mark.parametrize("of_mariadb", [False, True])
def test_a_time_that_the_server_reads_as_a_date_depends_on_the_clock(
    shown: str, expression: str, of_mariadb: bool
) -> None:
    rows = [*PLAIN, *OF_TIMES, row("v", shown, expression)]
    assert session_bound(rows, of_mariadb=of_mariadb) == {
        "v": "the time of the reading (a TIME is read as a date)"
    }


@pytest.mark.parametrize(
    ("shown", "expression"),
    [
        ("time", "`at`"),
        ("datetime", "timestamp(`born`,`at`)"),
        ("datetime", "addtime(timestamp(`born`),`at`)"),
        ("datetime", "cast(concat(`born`,' ',`at`) as datetime)"),
        ("varchar(30)", "concat(date_format(`born`,'%Y'),time_format(`at`,'%H'))"),
        ("varchar(30)", "date_format(`at`,'%H:%i')"),
        ("int", "(hour(`at`) + year(`born`))"),
        ("int", "(`at` > '10:00') and (`born` > '2020-01-01')"),
        ("int", "`at` > '10:00' and `born` > '2020-01-01'"),
        ("date", "if(`at` > '10:00',`born`,NULL)"),
        ("date", "case when `at` > '10:00' then `born` end"),
        ("date", "(case when (`at` > `begins`) then `born` else `dt` end)"),
        ("int", "timestampdiff(HOUR,`born`,`dt`) > `at`"),
        ("int", "(`at` - `begins`)"),
        ("int", "extract(hour from `at`)"),
        ("time", "timediff(`dt`,`born`)"),
        ("time", "(`at` + interval 1 hour)"),
        ("datetime", "(`dt` + interval hour(`at`) hour)"),
        ("time", "coalesce(`at`,`begins`)"),
        ("time", "if(1,`at`,sec_to_time(5))"),
        ("time", "cast(`dt` as time)"),
        ("date", "str_to_date(`Text`,'%Y-%m-%d %H:%i')"),
    ],
)
@pytest.mark.parametrize("of_mariadb", [False, True])
def test_a_time_that_stays_one_is_taken(shown: str, expression: str, of_mariadb: bool) -> None:
    rows = [*PLAIN, *OF_TIMES, row("v", shown, expression)]
    assert session_bound(rows, of_mariadb=of_mariadb) == {}


def test_a_column_with_a_reserved_name_hides_no_word_of_an_expression() -> None:
    """In the catalog's expressions, a column with a reserved name is always in quotes."""
    rows = [
        *PLAIN,
        row("interval", "int"),
        row("v", "varchar(30)", "(`Text` + interval `interval` day)"),
        row("w", "varchar(30)", "(`at` + interval 1 day)"),
    ]
    assert set(session_bound(rows)) == {"v", "w"}


def test_a_virtual_timestamp_depends_on_the_time_zone_of_its_reader() -> None:
    """The server computes a time in the session's zone and converts it to UTC."""
    rows = [
        *PLAIN,
        row("due", "timestamp(6)", "`born` + interval 1 day"),
        row("seen", "timestamp", "json_value(`Text`,'$.at')"),
        row("kept", "timestamp", "`born`", "STORED GENERATED"),
    ]
    why = "the session's time zone (its type timestamp)"
    assert session_bound(rows) == {"due": why, "seen": why}


def test_what_is_computed_from_such_a_column_is_one() -> None:
    rows = [
        *PLAIN,
        row("month", "int(11)", "month(`day`)"),
        row("day", "date", "cast(`made` as date)"),
        row("kept", "date", "cast(`made` as date)", "STORED GENERATED"),
        row("of_kept", "int(11)", "month(`kept`)"),
        row("now", "int(11)", "`id` + 1"),
        row("of_now", "int(11)", "`now` + 1"),
    ]
    assert session_bound(rows) == {
        "day": "the session's time zone (column made)",
        "month": "column day, which is virtual, too",
    }


def test_it_is_refused_by_name_unless_it_is_left_out() -> None:
    rows = (*PLAIN, row("day", "date", "cast(`made` as date)"), row("u", "uuid", "uuid()"))
    table = TableId("shop", "shop", "t")
    found = Described(
        table, "BASE TABLE", "InnoDB", False, "", rows, ("id",), (("id",),), None, of_mariadb=True
    )
    source = SourceTable(
        table=table,
        kind="table",
        columns=found.source_columns(),
        primary_key=("id",),
        unique_indexes=(("id",),),
        identity_columns=("id",),
        source_kind="mariadb",
    )
    with pytest.raises(SchemaError) as refused:
        lake_columns(source, TableSettings())
    assert "'day' (is virtual, and its value depends on the session's time zone" in (
        refused.value.message
    )
    assert "columns: {exclude: [day, u]}" in refused.value.remedy
    assert "Or replace day, u by a plain column" in refused.value.remedy
    kept = lake_columns(
        source, TableSettings.model_validate({"columns": {"exclude": ["day", "u"]}})
    )
    assert [column.name for column in kept] == list(KINDS)
    one = TableSettings.model_validate({"columns": {"exclude": ["u"]}})
    with pytest.raises(SchemaError, match=r"'day' of table shop:shop\.t is virtual"):
        lake_columns(source, one)
