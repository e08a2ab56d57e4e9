"""Keys with difficult values, on real sources: each row is always exactly one row in the lake."""

from __future__ import annotations

import pytest

from cdc.lake import key_text
from cdc.run import comparison as shape
from cdc.store.table_state import State
from operate.resync import resync
from stack.mysql_software import MARIADB, MYSQL
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.shop import shop as shop

KEYED = ("macs", "moments", "halves", "folded")


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_awkward_keys_by_copy_and_by_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some keys treat several values as one: 0.0 and -0.0, or texts that differ only in case."""
    shop.database.execute(
        "CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2',"
        " deterministic = false)",
        "CREATE TABLE macs (a text, b int, v text, PRIMARY KEY (a, b))",
        "CREATE TABLE moments (at timestamptz, id int, v text, PRIMARY KEY (at, id))",
        "CREATE TABLE halves (f float8 PRIMARY KEY, v text)",
        "CREATE TABLE folded (k text COLLATE anycase PRIMARY KEY, v text)",
        "CREATE TABLE zoned (t timetz PRIMARY KEY, v text)",
        "CREATE TABLE listed (l int[] PRIMARY KEY, v text)",
        "INSERT INTO macs VALUES ('00:1b:44:11', 1, 'v'), ('a,b:c', 1, 'w'), ('', 1, ''),"
        " ('\uff21', 1, 'x'), ('\U0001f600', 1, 'y')",
        "INSERT INTO moments VALUES ('1969-12-31 23:59:59.999999Z', 1, 'v'), ('now', 1, '')",
        "INSERT INTO halves VALUES ('-0.0', 'v'), ('NaN', 'w'), (0.1, 'x'), (1, 'y')",
        "INSERT INTO folded VALUES ('a', 'v'), ('B', 'w'), ('c', 'x')",
        "INSERT INTO zoned VALUES ('00:00:00+00', 'v'), ('01:00:00+01', 'two')",
        "INSERT INTO listed VALUES ('{1,2}', 'v'), ('[2:3]={1,2}', 'two')",
    )
    *taken, zoned, listed = shop.onboard(*KEYED, "zoned", "listed")
    succeeded(taken)
    for refused, column in ((zoned, "'t'"), (listed, "'l'")):
        assert refused.error is not None
        assert f"key column {column}" in refused.error.message

    shop.database.execute(
        "UPDATE macs SET v = 'new' WHERE b = 1",
        "UPDATE macs SET a = 'a:b:c' WHERE a = ''",
        "INSERT INTO macs VALUES ('a:b:c', 2, 'z')",
        "DELETE FROM macs WHERE a IN ('a,b:c', '\uff21')",
        "UPDATE moments SET v = 'new'",
        "UPDATE moments SET at = '1969-12-31 23:59:59+00' WHERE v = 'new' AND at < '2000-01-01'",
        "UPDATE halves SET f = 0.0, v = 'plus'  WHERE f = 0",
        "UPDATE halves SET v = 'nan' WHERE f = 'NaN'",
        "DELETE FROM halves WHERE f = 1",
        "INSERT INTO folded VALUES ('A', 'upper') ON CONFLICT (k) DO UPDATE SET k = 'A', v = 'A'",
        "UPDATE folded SET k = 'b' WHERE k = 'b'",
        "DELETE FROM folded WHERE k = 'C'",
    )
    shop.settle("folded")
    run_without_error(shop)
    shop.database.execute(
        "UPDATE halves SET f = '-0.0' WHERE f = 0",
        "DELETE FROM folded WHERE k = 'a'",
        "INSERT INTO folded VALUES ('a', 'again')",
    )
    shop.assert_equal(*KEYED)

    # A version that writes another text of keys does not go on with rows that have this one.
    monkeypatch.setattr(key_text, "FORM", key_text.FORM + 1)
    monkeypatch.setattr(shape, "FORM", key_text.FORM)
    (error,) = [result.error for result in shop.run() if result.table == shop.table("macs")]
    assert error is not None
    former, form = key_text.FORM - 1, key_text.FORM
    assert f"(a, b) as text of form {former} to (a, b) as text of form {form}" in error.message
    assert shop.record("macs").state is State.NEEDS_BOOTSTRAP
    succeeded(resync(shop.services, [shop.table("macs")]))
    assert shop.record("macs").state is State.INCREMENTAL


@pytest.mark.parametrize("database", kinds(of=(MYSQL, MARIADB)), indirect=True)
def test_two_texts_that_a_collation_takes_for_one_key(shop: Shop) -> None:
    """To the server, both texts are the key of one row; an event has the bytes before and after."""
    shop.database.execute(
        "CREATE TABLE folded (k varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        " PRIMARY KEY, v text)",
        "CREATE TABLE halves (f double PRIMARY KEY, v text)",
        "INSERT INTO folded VALUES ('a', 'v'), ('B', 'w'), ('c', 'x'), ('pad', 'y'), ('é:,', '')",
        "INSERT INTO halves VALUES (-0.0, 'v'), (0.5, 'w')",
    )
    succeeded(shop.onboard("folded", "halves"))
    shop.assert_equal("folded", "halves")
    shop.database.execute(
        "INSERT INTO folded VALUES ('A', 'no') ON DUPLICATE KEY UPDATE k = 'A', v = 'upper'",
        "REPLACE INTO folded VALUES ('b', 'lower')",
        "DELETE FROM folded WHERE k = 'C'",
        "UPDATE folded SET k = 'pad  ' WHERE k = 'pad'",
        "UPDATE folded SET k = 'E:,' WHERE k = 'e:,'",
        "UPDATE halves SET f = 0.0 WHERE f = 0",
    )
    shop.settle("folded")
    run_without_error(shop)
    shop.database.execute(
        "REPLACE INTO folded VALUES ('á', 'again')",
        "UPDATE halves SET f = -0.0, v = 'minus' WHERE f = 0",
    )
    shop.assert_equal("folded", "halves")
