"""Columns that the settings name, but that the table does not have."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from cdc.config import TableSettings
from cdc.sources.selection import (
    lake_columns,
    lake_schema,
    misread,
    not_there,
    require_named,
    rules,
)
from cdc.sources.source_facts import SourceColumn, SourceTable
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.table import TableId, TableSchema
from schemas.types_postgres import PostgresType


def table(*names: str, kind: str = "text") -> SourceTable:
    return SourceTable(
        table=TableId("shop", "public", "t"),
        kind="table",
        columns=tuple(
            SourceColumn(name, PostgresType(kind), True, False, None, number=number)
            for number, name in enumerate(names, 1)
        ),
        primary_key=("id",),
        unique_indexes=(("id",),),
        replica_identity="default",
        identity_columns=("id",),
        owner="o",
        source_kind="postgres",
    )


def settings(**columns: Any) -> TableSettings:
    return TableSettings.model_validate({"columns": columns})


@pytest.mark.parametrize("names", [("id", "a"), ("id", "b"), ("id", "c")])
def test_a_rule_for_every_name_of_a_column_needs_one_of_them(names: tuple[str, ...]) -> None:
    wanted = settings(mask=["a", "b", "c"], renames={"b": "a", "c": "b"})
    assert not_there(table(*names), wanted) == ()
    require_named(table(*names), wanted)


def test_a_rule_for_a_name_to_come_does_not_cover_the_name_of_now() -> None:
    """If the rule for the new name sufficed, values under the present name would not be masked."""
    wanted = settings(mask=["b"], hash=["a"], renames={"b": "a"})
    assert not_there(table("id", "a"), wanted) == ("b",)
    with pytest.raises(SchemaError, match="'b'"):
        require_named(table("id", "a"), wanted)


def test_an_entry_alone_may_wait() -> None:
    assert not_there(table("id", "a"), settings(renames={"y": "x"})) == ()


def test_a_decimal_of_the_settings_is_the_columns_type_and_rule() -> None:
    source = table("id", "a", "b", kind="numeric")
    chosen = {"a": "decimal(9,1)", "b": "decimal(10,2)"}
    columns = lake_columns(source, settings(**{"as": chosen, "hash": ["b"]}))
    free, shown, hashed = columns
    assert (free.lake_type, free.chosen) == ("string", "")
    assert (shown.lake_type, shown.chosen, shown.read_by_key) == (
        "decimal(9,1)",
        "decimal(9,1)",
        False,
    )
    assert (hashed.lake_type, hashed.plain, hashed.chosen) == ("string", *["decimal(10,2)"] * 2)
    schema = TableSchema(source.table, columns, ("id",))
    for one in (schema, schema.shown()):
        found = rules(source, one)
        assert {name: found[name].lake_type for name in "ab"} == chosen
        assert "***" in found["b"].read("b")
        assert "***" not in found["a"].read("a")


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_a_time_without_a_zone_is_in_utc_if_the_settings_say_so(kind: str) -> None:
    source = table("id", "a", "b", kind=kind)
    given = {"columns": {"mask": ["b"]}, "timestamps_without_zone": "timestamp"}
    columns = lake_columns(source, TableSettings.model_validate(given))
    assert [one.plain or one.lake_type for one in columns] == ["timestamp"] * 3
    found = rules(source, TableSchema(source.table, columns, ("id",)))
    assert {one.lake_type for one in found.values()} == {"timestamp"}
    assert {one.from_jdbc("c") for one in found.values()} == {"timestamp_micros(c)"}


def test_a_time_without_a_zone_has_a_type_of_its_own_by_default() -> None:
    source = table("id", "a", kind="timestamp")
    columns = lake_columns(source, TableSettings())
    assert {one.lake_type for one in columns} == {"timestamp_ntz"}
    assert {
        one.lake_type for one in rules(source, TableSchema(source.table, columns, ())).values()
    } == {"timestamp_ntz"}


def test_a_decimal_for_another_type_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"'a' of table shop:public\.t has type text"):
        lake_columns(table("id", "a"), settings(**{"as": {"a": "decimal(9,1)"}}))


@pytest.mark.parametrize(
    "kind", [PostgresType("timetz"), PostgresType("_int4", element=PostgresType("int4"))]
)
def test_a_key_of_which_two_are_one_in_the_lake_is_refused(kind: PostgresType) -> None:
    source = table("id", "a")
    key, *rest = source.columns
    keyed = replace(source, columns=(replace(key, type=kind, nullable=False), *rest))
    with pytest.raises(SchemaError, match=r"key column 'id' of table .* can be equal in the lake"):
        lake_schema(keyed, TableSettings())


def odd(**types: str) -> SourceTable:
    """A table with the key `id` and with these columns; each value is a column's type."""
    columns = {"id": "int8", **types}
    return replace(
        table(*columns),
        columns=tuple(
            SourceColumn(name, PostgresType(kind), name != "id", False, None, number=number)
            for number, (name, kind) in enumerate(columns.items(), start=1)
        ),
    )


def pasted(remedy: str) -> TableSettings:
    """The table settings in a remedy, parsed as if a person had pasted them."""
    (entry,) = re.findall(r"`(tables: .+})`", remedy)
    (found,) = yaml.safe_load("{" + entry + "}")["tables"].values()
    return TableSettings.model_validate(found)


def test_letters_of_any_alphabet_make_a_name() -> None:
    names = ["id", "größe", "名前", "Имя_2"]
    found = lake_columns(odd(**dict.fromkeys(names[1:], "text")), settings())
    assert [one.name for one in found] == names


def test_all_refused_columns_are_named_with_the_settings_that_let_the_table_travel() -> None:
    source = odd(
        bs="varbit", **{"xid": "xid8", "_CDC_x": "text", "we: ird": "text"}, p="point", fine="text"
    )
    with pytest.raises(UnsupportedTypeError) as caught:
        lake_columns(source, settings())
    message = caught.value.message
    assert message.startswith("5 columns of table shop:public.t cannot be replicated as they are: ")
    for said in (
        "'bs' (varbit: its length is lost on the way)",
        "'xid' (xid8: not in the topic at all)",
        "'p' (point: floating point arrives in another form than the source prints)",
        "'_CDC_x' (begins like the columns that Tributary or Hudi adds)",
        "'we: ird' (has a name that Hudi does not allow: only letters, digits and _)",
    ):
        assert said in message
    chosen = pasted(caught.value.remedy)
    assert [one.name for one in lake_columns(source, chosen)] == [
        "id",
        "bs",
        "xid",
        "p",
        "fine",
    ]


def test_a_column_that_is_refused_as_text_too_is_left_out() -> None:
    source = odd(bs="varbit", owner="regrole", other="aclitem")
    for given in (settings(), settings(**{"as": {"owner": "string"}})):
        with pytest.raises(UnsupportedTypeError) as caught:
            lake_columns(source, given)
        chosen = pasted(caught.value.remedy)
        assert sorted(chosen.columns.exclude) == ["other", "owner"]
        rules = chosen.columns.model_copy(update={"as_": {"bs": "string"}})
        found = lake_columns(source, chosen.model_copy(update={"columns": rules}))
        assert [one.name for one in found] == ["id", "bs"]


def test_a_log_leaves_refused_columns_out_and_what_was_set_stays() -> None:
    source = odd(bs="varbit", p="point")
    with pytest.raises(UnsupportedTypeError) as caught:
        lake_columns(source, settings(exclude=["bs"]).model_copy(update={"mode": "append"}))
    assert "columns.as" not in caught.value.remedy
    chosen = pasted(caught.value.remedy).model_copy(update={"mode": "append"})
    assert [one.name for one in lake_columns(source, chosen)] == ["id"]


def test_a_refused_column_of_the_key_is_told_what_a_key_can_do() -> None:
    source = replace(odd(bs="varbit", p="point"), primary_key=("id", "bs"))
    with pytest.raises(UnsupportedTypeError) as caught:
        lake_columns(source, settings())
    assert "For bs, set key_columns to other columns" in caught.value.remedy
    assert list(pasted(caught.value.remedy).columns.as_) == ["p"]


def misread_one(*columns: str, key: tuple[str, ...] = ("id",)) -> SourceTable:
    """A table in which the named columns have a type that the connector takes for another type."""
    source = odd(email="email", note="text")
    found = (
        replace(one, misread_as="app.email") if one.name in columns else one
        for one in source.columns
    )
    return replace(source, columns=tuple(found), primary_key=key, unique_indexes=(key,))


def test_a_type_that_the_connector_can_take_for_another_one_is_refused_by_both_names() -> None:
    source = misread_one("email")
    with pytest.raises(UnsupportedTypeError) as caught:
        lake_columns(source, settings())
    for said in ("'email'", "type email", "can take it for app.email", "NULL, 0 or an empty text"):
        assert said in caught.value.message
    assert "Or rename app.email: then restart the connector" in caught.value.remedy
    assert list(pasted(caught.value.remedy).columns.as_) == ["email"]
    with pytest.raises(UnsupportedTypeError, match=r"app\.email"):
        lake_columns(source, settings(**{"as": {"id": "string"}}))


@pytest.mark.parametrize("chosen", [{"as": {"email": "string"}}, {"exclude": ["email"]}])
def test_what_is_read_by_key_or_left_out_may_have_such_a_type(chosen: dict[str, Any]) -> None:
    source = misread_one("email")
    assert misread(source, settings()) == (source.columns[1],)
    assert misread(source, settings(**chosen)) == ()
    assert lake_schema(source, settings(**chosen)).key == ("id",)


def test_a_key_of_such_a_type_is_refused_whatever_the_settings_say() -> None:
    source = misread_one("email", key=("email",))
    for chosen in (settings(), settings(**{"as": {"email": "string"}})):
        with pytest.raises(SchemaError, match="'email'"):
            lake_schema(source, chosen)
