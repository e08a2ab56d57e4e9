"""Columns that the settings mask or hash: the lake never has their values, by copy or by stream."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.lake.publish import current_path
from cdc.store.table_state import State
from operate.onboard import bootstrap
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import BIG
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, overlook_the_catalog, succeeded

KEY = "a key of the test"
NAMES = ("id", "email", "phone", "spot", "late")


@pytest.fixture
def shop(
    database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("TEST_HASH_KEY", KEY)
    shop = Shop(database, spark, tmp_path)
    yield shop
    shop.services.close()


def configure(shop: Shop, **columns: object) -> None:
    lake = shop.config().lake
    shop.tables = {"public.people": {"columns": columns, "delete_mode": "soft"}}
    shop.reconfigure(lake={"url": lake.url, "hash_key": "${TEST_HASH_KEY}"})


def hashed(text: str | None) -> str | None:
    """The expected hash of a text: HMAC-SHA-256 by Python's own library."""
    if text is None:
        return None
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def assert_hidden(shop: Shop, spark: SparkSession, columns: dict[str, str]) -> None:
    """Assert that the lake has the source's rows, with masked or hashed values in these columns."""
    path = current_path(shop.record("people").base_path)
    assert path is not None
    frame = spark.read.format("hudi").load(path).where("NOT coalesce(_cdc_deleted, false)")
    names = [name for name in NAMES if name in frame.columns]
    lake = sorted(tuple(row) for row in frame.select(*names).collect())
    asked = ", ".join(name if name == "id" else f"{name}::text" for name in names)
    with shop.database.connect() as connection:
        truth = sorted(connection.execute(f"SELECT {asked} FROM people".encode()).fetchall())
    shown = {
        "hash": hashed,
        "mask": lambda text: None if text is None else "***",
        "": lambda text: text,
    }
    expected = [
        tuple(
            value if name == "id" else shown[columns.get(name, "")](value)
            for name, value in zip(names, row, strict=True)
        )
        for row in truth
    ]
    assert lake == expected
    assert len(lake) > 1


def test_values_are_hidden_by_copy_and_by_stream(shop: Shop, spark: SparkSession) -> None:
    rules = {"hash": ["email", "spot"], "mask": ["phone"], "as": {"spot": "string"}}
    hide = {"email": "hash", "spot": "hash", "phone": "mask", "late": "hash"}
    shop.database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, n int, email text, phone bigint, spot point)",
        f"INSERT INTO people VALUES (1, 0, {BIG}, 491701, '(1,2)'), (2, 0, 'a@b.c', 2, '(3,4)'),"
        " (3, 0, NULL, NULL, NULL), (4, 0, '', 0, '(0,0)')",
    )
    configure(shop, **rules)
    succeeded(shop.onboard("people"))
    assert_hidden(shop, spark, hide)
    # A value stored out of line that does not change, one that does, a key that changes, a delete.
    shop.database.execute(
        "UPDATE people SET n = 1 WHERE id = 1",
        "UPDATE people SET email = 'new@b.c', phone = 3 WHERE id = 2",
        "INSERT INTO people VALUES (5, 0, 'a@b.c', 2, '(5,6)')",
        "UPDATE people SET id = 6 WHERE id = 3",
        "DELETE FROM people WHERE id = 4",
    )
    assert shop.verify("people").equal  # brings the lake up to date
    assert_hidden(shop, spark, hide)
    # The rule is there before its column, so not one value comes through.
    configure(shop, **{**rules, "hash": [*rules["hash"], "late"]})
    (result,) = shop.run()
    assert result.error is None
    assert any("columns it lacks: late" in warning for warning in result.warnings)
    shop.database.execute(
        "ALTER TABLE people ADD COLUMN late varchar(20)",
        "INSERT INTO people VALUES (7, 0, 'late@b.c', 7, NULL, 'other')",
        "UPDATE people SET late = 'secret' WHERE id = 2",
    )
    assert shop.verify("people").equal  # brings the lake up to date
    assert_hidden(shop, spark, hide)
    # The deleted row is kept, and hides what it held.
    path = current_path(shop.record("people").base_path)
    kept = spark.read.format("hudi").load(str(path)).where("_cdc_deleted AND id = 4").collect()
    assert [(row["email"], row["phone"], row["late"]) for row in kept] == [
        (hashed(""), "***", None)
    ]
    found = shop.verify("people")
    assert (found.equal, found.rows_compared) == (True, 5)


@pytest.mark.breadth
def test_what_is_hidden_is_compared_and_a_new_rule_asks_for_a_copy(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, email text, phone text)",
        "INSERT INTO people SELECT g, g || '@b.c', g FROM generate_series(1, 500) g",
    )
    configure(shop, hash=["email"])
    succeeded(shop.onboard("people"))
    # Rows in motion are sampled by key, and one that the stream never reported is found.
    publication = shop.services.capture(shop.table("people")).publication
    with shop.writing("UPDATE people SET email = email || 'x' WHERE id <= 3", pause_s=0.05):
        found = shop.verify("people")
    assert found.equal
    assert found.checked_again > 0, "nothing was in motion: the test proves nothing"
    shop.database.execute(
        f"ALTER PUBLICATION \"{publication}\" SET (publish = 'insert, delete, truncate')",
        "UPDATE people SET email = 'lost' WHERE id = 7",
        f"ALTER PUBLICATION \"{publication}\" SET (publish = 'insert, update, delete, truncate')",
    )
    overlook_the_catalog(shop, "people")
    found = shop.verify("people")
    assert [(dict(one.key), one.columns) for one in found.differences] == [({"id": 7}, ("email",))]
    # Rows hidden by another key do not mix with the lake's; an idle table is reported, too.
    monkeypatch.setenv("TEST_HASH_KEY", "another key")
    shop.run()
    assert shop.record("people").state is State.NEEDS_BOOTSTRAP
    assert "lake.hash_key" in str(shop.record("people").reason)
    monkeypatch.setenv("TEST_HASH_KEY", KEY)
    succeeded(bootstrap(shop.services, [shop.table("people")]))
    configure(shop, hash=["email"], mask=["phone"])
    shop.run()
    assert shop.record("people").state is State.NEEDS_BOOTSTRAP
    assert "columns.mask" in str(shop.record("people").reason)
