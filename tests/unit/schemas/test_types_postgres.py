"""The rules of the type map as text; other tests check values on a real source and connector."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UnsupportedTypeError
from schemas.type_rule import SourceType, TypeRule
from schemas.types_mysql import MysqlType
from schemas.types_postgres import PostgresType, numeric_modifier


def numeric(precision: int, scale: int) -> PostgresType:
    return PostgresType("numeric", ((precision << 16) | (scale & 0x7FF)) + 4)


def lake(kind: PostgresType) -> str:
    return kind.rule(table="s:public.t", column="c").lake_type


@given(st.integers(1, 1000), st.integers(-1000, 1000))
def test_numeric_modifier_is_unpacked(precision: int, scale: int) -> None:
    assert numeric_modifier(numeric(precision, scale).typmod) == (precision, scale)


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (10, 2, "decimal(10,2)"),
        (38, 0, "decimal(38,0)"),
        (38, 38, "decimal(38,38)"),
        (3, 5, "decimal(5,5)"),
        (39, 0, "string"),
        (3, 39, "string"),
    ],
)
def test_numeric_becomes_decimal_while_its_digits_fit(
    precision: int, scale: int, expected: str
) -> None:
    assert lake(numeric(precision, scale)) == expected


def test_numeric_without_precision_is_text() -> None:
    assert lake(PostgresType("numeric")) == "string"


def test_money_that_has_not_two_digits_after_the_point_is_refused_as_text_too() -> None:
    assert lake(PostgresType("money")) == "string"
    yen = PostgresType("money", typmod=0)
    for kind in (yen, PostgresType("fee", kind="d", base=yen), PostgresType("_m", element=yen)):
        for as_text in (False, True):
            with pytest.raises(UnsupportedTypeError, match="gives it 0 digits after the point"):
                kind.rule(table="s:public.t", column="c", as_text=as_text)


@pytest.mark.parametrize(
    "kind",
    [
        PostgresType("name"),
        PostgresType("point"),
        PostgresType("hstore"),
        PostgresType("pg_lsn"),
        PostgresType("tstzrange", kind="r"),
        PostgresType("int4multirange", kind="m"),
        PostgresType("pair", kind="c"),
        PostgresType("varbit", 12),
        PostgresType("bit", 8),
        PostgresType("_bit", 1, element=PostgresType("bit", 1)),
        numeric(3, -2),
        PostgresType("_time", element=PostgresType("time")),
        PostgresType("_date", element=PostgresType("date")),
        PostgresType("_timestamp", element=PostgresType("timestamp")),
        PostgresType("_timestamptz", element=PostgresType("timestamptz")),
        PostgresType("_mood", element=PostgresType("mood", kind="e")),
        PostgresType("_d", element=PostgresType("d", kind="d", base=PostgresType("int4"))),
        PostgresType("made_up"),
        PostgresType("anyelement", kind="p"),
    ],
)
def test_a_type_without_a_proven_rule_is_refused_by_name(kind: PostgresType) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        kind.rule(table="s:public.t", column="odd one")
    for part in ("odd one", "s:public.t", str(kind)):
        assert part in caught.value.message
    assert "columns.exclude: [odd one]" in caught.value.remedy


@pytest.mark.parametrize("name", ["regclass", "regrole", "regtype", "regproc", "aclitem"])
def test_text_with_names_of_other_objects_is_refused_as_text_too(name: str) -> None:
    """A rename of such an object changes the text of existing rows, but sends no event."""
    plain = PostgresType(name)
    over = PostgresType("over", kind="d", base=plain)
    for kind in (plain, PostgresType(f"_{name}", element=plain), over):
        for as_text in (False, True):
            with pytest.raises(UnsupportedTypeError, match="a rename changes") as refused:
                kind.rule(table="s:public.t", column="c", as_text=as_text)
            assert "columns.exclude: [c]" in refused.value.remedy


def test_domains_follow_what_they_are_made_of() -> None:
    inner = PostgresType("d1", kind="d", base=numeric(6, 3))
    assert lake(PostgresType("d2", kind="d", base=inner)) == "decimal(6,3)"


@pytest.mark.parametrize("domain", [False, True])
def test_an_interval_of_0_is_in_doubt_only_where_intervals_can_be_infinite(domain: bool) -> None:
    for infinite in (False, True):
        kind = PostgresType("interval", infinite=infinite)
        if domain:
            kind = PostgresType("span", kind="d", base=kind)
        rule = kind.rule(table="s:public.t", column="spent")
        assert bool(rule.doubtful) == infinite
        assert "column spent of s:public.t holds " in rule.read('"spent"')
        hidden = kind.rule(table="s:public.t", column="spent", hidden=True)
        assert "'***'" in hidden.read('"spent"')


def test_arrays_follow_their_elements() -> None:
    element = numeric(10, 2)
    assert lake(PostgresType("_numeric", element.typmod, element=element)) == "array<decimal(10,2)>"


@given(st.text(min_size=1, max_size=63))
def test_names_cannot_end_the_literal_that_a_message_is(name: str) -> None:
    rule = PostgresType("date").rule(table="s:public.t", column=name)
    query = rule.read('"c"')
    assert "{" not in query
    assert "}" not in query
    assert "?" not in query
    assert "\\" not in query
    # quotes pair up: around dates, the two halves of the message, nothing of the name
    assert query.count("'") == PostgresType("date").rule(table="s:public.t", column="c").read(
        '"c"'
    ).count("'")


def chosen(kind: PostgresType, decimal: str = "decimal(12,2)", *, hidden: bool = False) -> TypeRule:
    return kind.rule(table="s:public.t", column="c", decimal=decimal, hidden=hidden)


@pytest.mark.parametrize(
    "kind",
    [
        PostgresType("numeric"),
        numeric(10, 4),
        numeric(60, 9),
        PostgresType("d", kind="d", base=PostgresType("numeric")),
        PostgresType("d", kind="d", base=PostgresType("e", kind="d", base=numeric(60, 9))),
    ],
)
def test_a_number_of_any_precision_can_be_a_decimal_of_choice(kind: PostgresType) -> None:
    rule = chosen(kind)
    assert (rule.lake_type, rule.read_type) == ("decimal(12,2)", "decimal(12,2)")
    query = rule.read('"c"')
    assert 'abs("c") < 1e10 AND "c" = round("c", 2) THEN "c"::numeric(12,2)' in query
    assert "which decimal(12,2) of columns.as cannot hold: choose another decimal" in query
    assert '"c"::text' in query
    assert "'***'" in chosen(kind, hidden=True).read('"c"')


@pytest.mark.parametrize(
    "kind",
    [
        PostgresType("int4"),
        PostgresType("text"),
        PostgresType("float8"),
        PostgresType("money"),
        PostgresType("point"),
        PostgresType("numrange", kind="r"),
        PostgresType("_numeric", element=PostgresType("numeric")),
        PostgresType("d", kind="d", base=PostgresType("int8")),
        MysqlType.parse("decimal(60,2)"),
    ],
)
def test_what_is_no_numeric_cannot_be_a_decimal_of_choice(kind: SourceType) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        kind.rule(table="s:public.t", column="c", decimal="decimal(12,2)")
    assert f"'c' of table s:public.t has type {kind}" in caught.value.message
    assert "columns.as is decimal(12,2)" in caught.value.message


def test_a_negative_scale_is_refused_with_a_decimal_too() -> None:
    """With a negative scale, the connector sends other digits than the source has."""
    with pytest.raises(UnsupportedTypeError):
        chosen(numeric(5, -2))
