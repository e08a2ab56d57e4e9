"""A connector that a PostgreSQL value has stopped, and the steps that create its capture again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConnectError
from operate.lifecycle import offboard
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.shop import Shop, succeeded


@pytest.mark.breadth
def test_a_capture_that_a_value_stopped_is_made_anew(database: Database, tmp_path: Path) -> None:
    """The event stays in the log, even if the value is corrected and its table is offboarded."""
    shop = Shop(database, None, tmp_path)
    connect = shop.services.connect
    shop.create("t", 3)
    database.execute("CREATE TABLE many (id int PRIMARY KEY, n numeric[])")
    try:
        succeeded(shop.onboard("t", "many", with_bootstrap=False))
        name, sound = shop.services.capture(shop.table("t")).connector, connect.require_sound
        database.execute("INSERT INTO many VALUES (1, '{NaN}')")
        with pytest.raises(ConnectError, match=r"public\.many\.n") as stopped:
            wait_until(lambda: bool(sound(name)), "the connector fails")
        for said in ("no change on the source takes it out", "offboard all tables of this source"):
            assert said in stopped.value.remedy
        database.execute("UPDATE many SET n = '{1}'")
        offboard(shop.services, shop.table("many"), delete_data=False)
        connect.restart(name)
        with pytest.raises(ConnectError, match=r"public\.many\.n"):
            wait_until(lambda: bool(sound(name)), "the connector fails again")
        offboard(shop.services, shop.table("t"), delete_data=False)
        succeeded(shop.onboard("t", "many", with_bootstrap=False))
        database.execute("UPDATE many SET n = '{2}'")
        shop.settle("many")
        sound(name)
    finally:
        shop.services.close()
