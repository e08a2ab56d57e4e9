"""Names of lake tables in a real Hive Metastore: columns, partitions, and new generations."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from bootstrap.resync import resync_table
from cdc.config import Config
from cdc.config.lake import CatalogConfig
from cdc.errors import LakeError
from cdc.run import drop_name, keep_name, run_table, run_tables
from cdc.run.metastore_name import follow_name
from cdc.runtime import spark as spark_module
from cdc.runtime.progress import NullProgress
from cdc.runtime.spark import java_class
from cdc.sources.source_facts import Check
from cdc.store.table_state import Cause, State, transition
from operate.check import check
from operate.context import Services
from stack.local import LocalStack
from tests.integration.rigs.bootstrapping import LIMITS, Bootstrapping
from tests.integration.rigs.postgres import own_database
from tests.records import NOW

ROWS = 500
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def metastore(stack: LocalStack) -> str:
    stack.up(optional=["metastore"])
    url = stack.addresses().metastore_url
    assert url is not None
    return url


@pytest.fixture(scope="module")
def spark(
    stack: LocalStack, metastore: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A Spark session with which tests read tables by name; the product needs no such session."""
    document = yaml.safe_load(stack.config_text())
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "2g",
        "conf": {
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore,
        },
    }
    yield spark_module.session(Config.model_validate(document), "tributary-tests")
    spark_module.stop()


@pytest.fixture(scope="module")
def shop(
    stack: LocalStack,
    spark: SparkSession,
    metastore: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Named]:
    folder = tmp_path_factory.mktemp("catalog")
    with own_database(stack) as database, closing(Named(database, spark, folder)) as opened:
        opened.metastore = metastore
        yield opened


class Named(Bootstrapping):
    """Captured tables with names in a Hive Metastore, by which readers find them."""

    metastore = ""

    def create(self, columns: str, values: str, **settings: Any) -> str:
        """Create and copy a table that has a name in the metastore; returns the source's name."""
        name = f"t{next(_NUMBERS)}"
        self.database.execute(
            f"CREATE TABLE {name} ({columns})",
            f"INSERT INTO {name} SELECT {values} FROM generate_series(1, {ROWS}) g",
        )
        self.configure(**{f"public__{name}": settings})
        self.config = self.config.model_copy(
            update={"catalog": CatalogConfig(metastore=self.metastore)}
        )
        self.add(name)
        self.bootstrap(name)
        return name

    def resync(self, name: str) -> None:
        resync_table(self.context(), self.connect, self.record(name), limits=LIMITS)

    def follow(self, name: str) -> None:
        self.settle()
        (result,) = run_tables(self.context(), [self.record(name)])
        assert (result.error, result.warnings) == (None, ())

    def named(self, name: str) -> str:
        return f"{self.database.name}_public.{name}"

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows that Spark reads by the table's metastore name, sorted."""
        self.spark.sql(f"REFRESH TABLE {self.named(name)}")
        read = self.spark.table(self.named(name)).select(*columns)
        return sorted(tuple(row) for row in read.collect())

    def places(self, name: str) -> set[str]:
        """All folders of the table that its entries in the metastore name; one, if they agree."""
        with self.client() as client:
            database = f"{self.database.name}_public"
            assert list(client.getAllTables(database)).count(name) == 1
            table = client.getTable(database, name)
            serde = dict(table.getSd().getSerdeInfo().getParameters())
            partitions = client.listPartitions(database, name, -1)
            found = {str(one.getSd().getLocation()).rsplit("/", 1)[0] for one in partitions}
            places = {str(table.getSd().getLocation()), serde["path"], *found}
            return {place.replace("file:///", "file:/") for place in places}

    def partitions(self, name: str) -> set[int]:
        """The partition values that the metastore lists for a table with one partition column."""
        with self.client() as client:
            found = client.listPartitions(f"{self.database.name}_public", name, -1)
            return {int(one.getValues()[0]) for one in found}

    def left_over(self) -> list[str]:
        with self.client() as client:
            names = client.getAllTables(f"{self.database.name}_public")
            return [str(name) for name in names if "__" in str(name)]

    @contextmanager
    def client(self) -> Iterator[Any]:
        conf = java_class(self.spark, "org.apache.hadoop.hive.conf.HiveConf")()
        conf.set("hive.metastore.uris", self.metastore)
        kind = java_class(self.spark, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient")
        client = kind(conf)
        try:
            yield client
        finally:
            client.close()

    def attempt_path(self, name: str) -> str:
        attempt = self.record(name).attempt
        assert attempt is not None
        return attempt.path.replace("file:///", "file:/")


def test_a_reader_by_name_never_sees_an_error_or_an_empty_table(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY, v text", "g, 'old'")
    assert len(shop.rows(name, "id")) == ROWS
    first = shop.attempt_path(name)
    assert shop.places(name) == {first}
    # A change that sends no event: only the next generation shows it.
    shop.database.execute(
        f"ALTER PUBLICATION {shop.capture.publication} DROP TABLE {name}",
        f"UPDATE {name} SET v = 'new'",
        f"ALTER PUBLICATION {shop.capture.publication} ADD TABLE {name}",
    )
    seen: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                rows = shop.rows(name, "v")
                seen.append((len(rows), *sorted({value for (value,) in rows})))
            except Exception as error:  # noqa: BLE001 - whatever a reader sees is the result
                seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        shop.resync(name)
        after = len(seen)
        while len(seen) < after + 3 and reader.is_alive():
            stop.wait(0.05)
    finally:
        stop.set()
        reader.join()
    assert [one for one in seen if one not in ((ROWS, "old"), (ROWS, "new"))] == []
    assert seen[0] == (ROWS, "old")
    assert seen[-1] == (ROWS, "new")
    assert seen == sorted(seen, key=lambda one: one == (ROWS, "new")), "never back"
    assert shop.places(name) == {shop.attempt_path(name)} != {first}
    assert shop.left_over() == []


@pytest.mark.breadth
def test_new_columns_reach_the_name_with_the_run_that_brings_them(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY", "g")
    shop.database.execute(
        f"ALTER TABLE {name} ADD w text", f"UPDATE {name} SET w = 'seven' WHERE id = 7"
    )
    shop.follow(name)
    assert (7, "seven") in shop.rows(name, "id", "w")


@pytest.mark.breadth
def test_partitions_move_with_the_name(shop: Named) -> None:
    columns = "id int, part int, v text, PRIMARY KEY (id, part)"
    name = shop.create(columns, "g, g % 3, 'x'", partition_by=["part"])
    first = shop.places(name)
    assert first == {shop.attempt_path(name)}
    shop.database.execute(f"INSERT INTO {name} VALUES (1, 9, 'new partition')")
    shop.follow(name)
    assert shop.places(name) == first
    shop.resync(name)
    assert shop.places(name) == {shop.attempt_path(name)} != first
    assert len(shop.rows(name, "id")) == ROWS + 1
    assert shop.left_over() == []


def test_a_column_type_that_the_metastore_does_not_change_in_place(
    shop: Named, caplog: pytest.LogCaptureFixture
) -> None:
    name = shop.create("id int PRIMARY KEY, v text", "g, g::text")
    shop.database.execute(f"ALTER TABLE {name} ALTER v TYPE int USING v::int")
    shop.settle()
    run_tables(shop.context(), [shop.record(name)])
    with caplog.at_level("INFO", logger="cdc.lake.metastore"):
        shop.resync(name)
    assert any("two renames replace it" in message for message in caplog.messages)
    assert shop.rows(name, "id", "v")[:2] == [(1, 1), (2, 2)]
    assert shop.places(name) == {shop.attempt_path(name)}
    assert shop.left_over() == []


def test_a_commit_that_the_name_does_not_show_yet_is_named_by_the_next_look(shop: Named) -> None:
    """A process that is killed right after its commit leaves such a commit; so does `verify`.

    Then the next look at the idle or paused table must add the new partition to the metastore.
    """
    columns = "id int, part int, v text, PRIMARY KEY (id, part)"
    name = shop.create(columns, "g, g % 3, 'x'", partition_by=["part"])
    for number, state in ((9, State.INCREMENTAL), (10, State.PAUSED)):
        shop.database.execute(f"INSERT INTO {name} VALUES (1, {number}, 'new partition')")
        shop.settle()
        assert run_table(shop.context(), shop.record(name)).commits == 1
        assert number not in shop.partitions(name)
        if state is State.PAUSED:
            paused = transition(shop.record(name), state, at=NOW, cause=Cause(reason="a migration"))
            shop.context().store.put(paused)
            follow_name(shop.context(), shop.record(name))
        else:
            assert run_tables(shop.context(), [shop.record(name)]) == []
        assert number in shop.partitions(name)


@pytest.mark.breadth
def test_a_name_of_someone_else_is_left_alone(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY", "g")
    with shop.client() as client:
        database = f"{shop.database.name}_public"
        table = client.getTable(database, name)
        table.getSd().setLocation("file:/elsewhere/t")
        client.alter_table(database, name, table)
    with pytest.raises(LakeError, match="which is not in"):
        keep_name(shop.context(), shop.record(name), lambda: None)
    shop.spark.sql(f"DROP TABLE {shop.named(name)}")


@pytest.mark.breadth
def test_a_name_can_be_forgotten(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY", "g")
    drop_name(shop.spark, shop.config, shop.record(name))
    assert not shop.spark.catalog.tableExists(shop.named(name))
    assert shop.lake(name, "id")


@pytest.mark.breadth
def test_an_edited_name_replaces_the_former_one(shop: Named) -> None:
    """A resync keeps the note of the table's name, by which a run of the idle table removes it."""
    name = shop.create("id int PRIMARY KEY", "g")
    shop.resync(name)
    edited = CatalogConfig(metastore=shop.metastore, table="{table}_v2")
    config = shop.config.model_copy(update={"catalog": edited})
    assert run_tables(shop.context(config=config), [shop.record(name)]) == []
    assert not shop.spark.catalog.tableExists(shop.named(name))
    assert len(shop.rows(f"{name}_v2", "id")) == ROWS
    drop_name(shop.spark, shop.config, shop.record(name))
    assert not shop.spark.catalog.tableExists(shop.named(f"{name}_v2"))


def test_a_metastore_that_is_away_is_a_warning_for_a_run(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY", "g")
    shop.database.execute(f"INSERT INTO {name} VALUES (0)")
    shop.settle()
    nowhere = CatalogConfig(metastore="thrift://127.0.0.1:1")
    config = shop.config.model_copy(update={"catalog": nowhere})
    (result,) = run_tables(shop.context(config=config), [shop.record(name)])
    assert (result.error, result.commits) == (None, 1)
    assert "thrift://127.0.0.1:1" in result.warnings[0]


def test_a_metastore_that_is_away_keeps_no_published_table_from_its_runs(shop: Named) -> None:
    name = shop.create("id int PRIMARY KEY", "g")
    first = shop.attempt_path(name)
    nowhere = CatalogConfig(metastore="thrift://127.0.0.1:1")
    config = shop.config.model_copy(update={"catalog": nowhere})
    done = resync_table(shop.context(config=config), shop.connect, shop.record(name), limits=LIMITS)
    assert "thrift://127.0.0.1:1" in done.warnings[0]
    assert (done.record.state, done.record.generation) == (State.INCREMENTAL, 2)
    assert shop.places(name) == {first} != {shop.attempt_path(name)}
    assert run_tables(shop.context(), [shop.record(name)]) == [], "it has no new changes"
    assert shop.places(name) == {shop.attempt_path(name)}
    named = shop.record(name)
    assert run_tables(shop.context(), [named]) == []
    assert shop.record(name) == named, "a name that points where it should is left alone"


def test_the_pre_flight_asks_the_metastore(shop: Named) -> None:
    def line(metastore: str) -> Check:
        catalog = CatalogConfig(metastore=metastore)
        config = shop.config.model_copy(update={"catalog": catalog})
        services = Services(config, NullProgress(), spark=shop.spark)
        (found,) = [line for line in check(services) if line.name == "catalog"]
        return found

    there, gone = line(shop.metastore), line("thrift://127.0.0.1:1")
    assert (there.status, "databases" in there.detail) == ("ok", True)
    assert (gone.status, "127.0.0.1:1" in gone.detail) == ("error", True)
    assert "catalog.metastore" in gone.remedy
