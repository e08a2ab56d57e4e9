"""Any content of a configuration file is read, or refused with an error that names the fault."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.config import Config, parse
from cdc.errors import ConfigError
from tests.unit.cdc.configuration import ENVIRONMENT, full

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(["${ADMIN_PW}", "${NOT_SET}", "${", "{source}", "{", "*", "a.b", "-1", "1e9"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.integers() | st.booleans(), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [path, *(below for key, item in value.items() for below in paths(item, (*path, key)))]


PATHS = paths(full())[1:]


def read_or_refuse(text: str) -> None:
    with mock.patch.dict(os.environ, ENVIRONMENT):
        try:
            assert isinstance(parse(text), Config)
        except ConfigError as error:
            refusal = error
        else:
            return
    assert refusal.context["field"]
    assert refusal.remedy
    assert not any(secret in refusal.message for secret in ENVIRONMENT.values())


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
# A name that a message repeats, by a reference to a secret.
@example([(("tables", "public.orders", "key_columns"), ["${ADMIN_PW}"])])
@example([(("tables", "public.orders", "columns", "exclude"), ["id", "x${ADMIN_PW}"])])
def test_any_value_anywhere(changes: list[tuple[tuple[Any, ...], object]]) -> None:
    document = full()
    for path, value in changes:
        place: Any = document
        for part in path[:-1]:
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[path[-1]] = value
    read_or_refuse(yaml.safe_dump(document))


@settings(max_examples=100)
@given(st.text(max_size=60) | st.text("a:{}[]-?!&*<>#|\n \"'$", max_size=60))
def test_any_text(text: str) -> None:
    read_or_refuse(text)


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_any_names(source: str, pattern: str) -> None:
    document = full()
    document["sources"][source] = document["sources"]["shop"]
    document["tables"] = {pattern: {"tier": "x"}}
    read_or_refuse(yaml.safe_dump(document))


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000])
def test_what_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML: nested too deeply"):
        parse(text)


@pytest.mark.parametrize("text", ["a: &a [*a]", "kafka: &k {java: *k}", "tables: &t {a.b: *t}"])
def test_what_holds_itself_is_refused(text: str) -> None:
    read_or_refuse(text)
