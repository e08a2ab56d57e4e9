"""Two installations with one ``lake.url`` do not replace or remove each other's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.lake.pointer import POINTER, Pointer, Published, read_local
from cdc.store.installation import Installation
from cdc.store.table_state import State
from stack.postgres import POSTGRES
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.person import Person, created, folder
from tests.integration.rigs.person import person as person
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop
from tests.integration.rigs.shop import shop as shop

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", [POSTGRES], indirect=True),
]


def another(shop: Shop) -> dict[str, Any]:
    """The settings of a second installation, which shares only the database and the lake."""
    document = shop.database.document(shop.folder)
    (source,) = document["sources"]
    own = dict.fromkeys(("slot", "publication", "topic_prefix"), f"their_{source}_{{tier}}")
    return {
        "sources": {source: {**document["sources"][source], **own}},
        "state": {"url": f"sqlite:///{shop.folder}/another.db"},
    }


def shown(at: Path) -> Pointer:
    pointer = read_local(at)
    assert pointer is not None
    return pointer


def test_a_second_installation_leaves_the_folder_of_the_first_as_it_says(person: Person) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", "--no-bootstrap", orders)
    at, theirs = folder(shop, "orders"), another(shop)
    person.configure(**theirs)
    person.done("onboard", "--no-bootstrap", orders)
    unfinished = str(shop.services.store.installation.new_attempt())
    (at / f"attempt={unfinished}").mkdir(parents=True)

    person.configure()
    person.done("bootstrap", orders)
    serving = shown(at)
    assert (at / f"attempt={unfinished}").exists(), "the other one still copies"
    told = person.refused("generations", "remove", orders, unfinished)
    assert "is of another installation" in told.messages
    person.configure(**theirs)
    told = person.refused("bootstrap", orders)
    assert f"attempt {serving.attempt}" in told.messages
    assert told.remedy.startswith("Run `tributary offboard")
    assert person.state("orders") is State.REGISTERED
    left = person.done("offboard", orders, "--delete-data")
    assert "which this installation did not make" in str(left.documents)
    assert {one.name for one in at.iterdir() if one.name[0] != "."} == {
        POINTER,
        f"attempt={serving.attempt}",
    }
    told = person.refused("onboard", orders)
    assert told.remedy.startswith("Set another lake.url for this installation")
    assert not any(name.startswith("their_") for name in shop.services.connect.names())

    document = shop.database.document(shop.folder)
    person.configure(**theirs, lake={**document["lake"], "url": f"{shop.folder}/their_lake"})
    person.done("onboard", orders)
    person.done("verify", orders)
    person.done("offboard", orders, "--delete-data")
    person.configure()
    shop.database.execute("UPDATE orders SET v = 3 WHERE id = 2")
    person.done("run")
    person.done("verify", orders)
    assert shown(at) == serving
    person.done("offboard", orders, "--delete-data")
    assert not at.exists()


def test_a_table_over_which_another_installation_published_stops_as_it_says(
    person: Person,
) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    at = folder(shop, "orders")
    serving, theirs = shown(at), str(Installation.new().new_attempt())
    other = Published(f"{at}/attempt={theirs}", 1, theirs)
    (at / f"attempt={theirs}").mkdir()
    (at / POINTER).write_text(Pointer.of(other, (serving.current,)).to_json())
    (at / f".{POINTER}.crc").unlink(missing_ok=True)

    person.run("run")
    assert person.state("orders") is State.FAILED, "its own generation is as good as before"
    told = person.refused("status", "--check", orders)
    assert f"attempt {theirs}" in told.messages
    (remedy,) = told.remedies
    person.follow(remedy, "onboard", "resync")
    shop.database.execute("UPDATE orders SET v = 3 WHERE id = 2")
    person.done("run")
    person.done("verify", orders)
    assert shown(at).former[0].attempt == theirs


def test_an_installation_whose_state_store_was_lost_takes_its_lake_over_as_it_says(
    person: Person,
) -> None:
    shop = person.shop
    (orders,) = created(shop, "orders")
    person.done("onboard", orders)
    at = folder(shop, "orders")
    lost = shown(at).attempt
    shop.database.execute("UPDATE orders SET v = 3 WHERE id = 2")

    person.configure(state={"url": f"sqlite:///{shop.folder}/made_anew.db"})
    told = person.refused("onboard", orders)
    assert f"attempt {lost}" in told.messages
    assert person.run("status").documents[0]["tables"] == []
    person.follow(told.remedy)
    person.done("run")
    person.done("verify", orders)
    person.done("generations", "remove", orders, lost)
    assert not (at / f"attempt={lost}").exists()
    person.done("offboard", orders, "--delete-data")
    assert not at.exists()
