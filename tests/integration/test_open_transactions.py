"""A Kafka transaction that stays open hides later changes from every consumer."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka as ck
import pytest
from pyspark.sql import SparkSession

from operate.check import check
from operate.run import Runs
from operate.status import TableStatus, status
from operate.targets import Shortfall
from stack.artifacts import fetch_software
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.shop import Shop, run_without_error, succeeded

TARGET_S = 5


@pytest.fixture
def shop(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database, spark, tmp_path, tables={"public.t": {"freshness_target_s": TARGET_S}})
    with closing(made.services):
        yield made


def open_transaction(shop: Shop, topic: str) -> None:
    """Write one record to a topic in a Kafka transaction that is left open."""
    settings = shop.services.config.kafka.librdkafka_config()
    longest = {"transaction.timeout.ms": 900_000}
    writer = ck.Producer({**settings, **longest, "transactional.id": str(uuid.uuid4())})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, value=b"hanging", partition=0)
    assert writer.flush(30) == 0


def abort_as_told(shop: Shop, remedy: str) -> None:
    """Abort the open transaction with the Kafka command that the remedy names."""
    told = re.search("`kafka-transactions.sh ([^`]* abort [^`]*)`", remedy)
    assert told is not None, remedy
    brokers = shop.services.config.kafka.bootstrap_servers
    software = fetch_software(("postgres",))
    subprocess.run(
        [
            str(software.java.executable),
            *("-cp", f"{software.kafka}/*", "org.apache.kafka.tools.TransactionsCommand"),
            *told[1].replace("BROKER", brokers).split(),
        ],
        check=True,
        timeout=120,
    )


def shown(shop: Shop) -> TableStatus:
    return status(shop.services, [shop.table("t")]).tables[0]


@pytest.mark.breadth
def test_changes_behind_a_hanging_transaction_make_their_table_late(shop: Shop) -> None:
    shop.create("t", 10)
    succeeded(shop.onboard("t"))
    topic, kafka = shop.record("t").topic, shop.services.kafka
    shop.database.execute("UPDATE t SET v = 1 WHERE id = 1")
    shop.settle("t")
    run_without_error(shop)
    open_transaction(shop, topic)
    before = kafka.high_watermarks(topic)[0]
    shop.database.execute("UPDATE t SET v = 2 WHERE id = 2")
    wait_until(lambda: kafka.high_watermarks(topic)[0] > before, "the change", 60)
    time.sleep(TARGET_S + 1)

    def targets() -> list[Shortfall]:
        runs = Runs(shop.services, shop.services.store.tables)
        assert not [result.error for result in runs.once() if result.error]
        return runs.targets

    hidden = kafka.stable_offsets(topic)[0]
    wait_until(lambda: shown(shop).late, "a heartbeat is no watermark", 30)
    for found in (targets(), list(status(shop.services, []).targets)):
        (missed,) = found
        assert (missed.cause, missed.missed, missed.tables) == (
            "transaction",
            True,
            (shop.table("t"),),
        )
        assert f"topic {topic} from offset {hidden} on" in missed.reason
        assert f"--start-offset {hidden}" in missed.remedy
    (line,) = (one for one in check(shop.services) if one.name == f"topic {topic}")
    assert line.status == "error"
    assert f"topic {topic} from offset {hidden} on" in line.detail
    assert f"--start-offset {hidden}" in line.remedy
    assert (shown(shop).events_behind or 0) >= 2
    abort_as_told(shop, line.remedy)
    shop.settle("t")
    assert [one for one in targets() if one.missed] == []
    shop.assert_equal("t")
    assert shown(shop).events_behind == 0
    wait_until(lambda: not shown(shop).late, "a heartbeat is the watermark again", 60)
