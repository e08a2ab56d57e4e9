from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import Config, parse
from cdc.config.templates import fill_name
from cdc.errors import ConfigError
from schemas.table import TableId
from tests.unit.cdc.configuration import ENVIRONMENT, full


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def read(document: dict[str, Any]) -> Config:
    return parse(yaml.safe_dump(document))


NAMES = st.text("aA_x0.é-", min_size=1, max_size=8)


def name(table: str) -> str:
    return fill_name("{table}", TableId("shop", "public", table))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("orders", "orders"),
        ("Orders", "_x4f_rders"),
        ("a.b", "a_x2e_b"),
        ("_x4f_rders", "_x5f_x4f_rders"),
        ("über", "_xfc_ber"),
    ],
)
def test_names_of_the_catalog(table: str, expected: str) -> None:
    assert name(table) == expected


@given(NAMES, NAMES)
def test_different_tables_never_share_a_name(one: str, other: str) -> None:
    assert (name(one) == name(other)) == (one == other)
    assert re.fullmatch(r"[a-z0-9_]+", name(one))


def test_a_template_that_would_give_two_tables_one_name_is_refused() -> None:
    document = full()
    document["catalog"]["table"] = "{table}"
    document["catalog"]["database"] = "lake"
    with pytest.raises(ConfigError, match=r"catalog\.table.*\{schema\}"):
        read(document)


@pytest.mark.parametrize("url", ["metastore:9083", "http://metastore:9083", "thrift://a:1,b:2"])
def test_a_metastore_is_named_by_a_thrift_url(url: str) -> None:
    document = full()
    document["catalog"]["metastore"] = url
    with pytest.raises(ConfigError, match="metastore"):
        read(document)
