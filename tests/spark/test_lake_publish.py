from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import psutil
import pytest
from pyspark.sql import SparkSession

from cdc.errors import LakeError, LostHistoryError, OtherInstallationError
from cdc.lake.ownership import Ownership
from cdc.lake.pointer import POINTER, Published
from cdc.lake.publish import (
    attempt_path,
    current_path,
    delete_path,
    delete_table,
    has_commit,
    probe,
    read_pointer,
    write_pointer,
)
from cdc.lake.shards import shared_path
from cdc.run.published_generation import check_serving
from cdc.store.attempt import Attempt
from cdc.store.installation import Installation
from cdc.store.lease import Leases
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from schemas.table import Shard
from tests.records import table_record
from tests.spark.lake import TABLE

if TYPE_CHECKING:
    from cdc.run.context import RunContext

FOLDERS = ["plain", "with space", "100%25", "hash#1", "a~2eb", "ünï", "x" * 200]


@pytest.mark.parametrize("name", FOLDERS)
def test_the_pointer_moves_from_generation_to_generation(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    base = f"file://{tmp_path}/{name}"
    assert current_path(base, spark) is None

    write_pointer(spark, base, Published(f"{base}/attempt=1", 1, "1"))
    write_pointer(spark, base, Published(f"{base}/attempt=2", 2, "2"))

    pointer = read_pointer(spark, base)
    assert pointer is not None
    shown = pointer.current
    assert (shown.path, shown.generation, shown.attempt) == (f"{base}/attempt=2", 2, "2")
    assert datetime.now(timezone.utc) - shown.published_at < timedelta(minutes=5)
    assert current_path(base) == shown.path, "what Spark wrote is found without it"
    kept = {path.name for path in (tmp_path / name).iterdir() if not path.name.endswith(".crc")}
    assert kept == {POINTER}, "a staged pointer was left behind"


def test_a_commit_of_before_the_active_timeline_is_not_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Commits of other shards can move the newest commit of an idle shard to Hudi's archive."""
    path = tmp_path.as_uri()
    assert not has_commit(spark, path, "20260101000000000")
    (tmp_path / ".hoodie").mkdir()
    for name in ("20260102000000000.commit", "20260103000000000.replacecommit"):
        (tmp_path / ".hoodie" / name).touch()
    there = {day: has_commit(spark, path, f"202601{day}000000000") for day in ("01", "02", "03")}
    assert there == {"01": True, "02": True, "03": True}
    assert not has_commit(spark, path, "20260102120000000"), "a lake that was put back"
    assert not has_commit(spark, path, "20260104000000000"), "a lake that was put back"


def test_readers_always_see_a_generation_while_hundreds_are_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = f"file://{tmp_path}/t"
    paths = [f"{base}/attempt={number}" for number in range(300)]
    for folder in paths[:2]:
        Path(folder.removeprefix("file://")).mkdir(parents=True)
    write_pointer(spark, base, Published(paths[0], 1, "0"))
    seen: list[str | None] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(current_path(base))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number, path in enumerate(paths[1:], 1):
            write_pointer(spark, base, Published(path, number + 1, str(number)))
            if number % 50 == 0:
                assert current_path(base, spark) == path
    finally:
        done.set()
        reader.join(60)

    assert None not in seen
    assert len(set(seen)) > 10, "the reader saw too few of them to prove anything"
    pointer = read_pointer(spark, base)
    assert pointer is not None
    assert [one.attempt for one in pointer.former] == ["1", "0"], "those whose folders are there"


SUSPENDED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from cdc.errors import FencedError
from cdc.lake import publish
from cdc.lake.pointer import Published
from cdc.store.lease import Leases
from cdc.runtime.spark import session
from cdc.store.state_store import Store
from tests.spark.local import local_config
folder = Path(sys.argv[2])
spark = session(local_config(folder / "suspended"))
leases = Leases(Store(f"sqlite:///{folder / 'state.db'}"), ttl_s=2.0)
replace = publish._replace_lake_file

def publish_second(name, before_check):
    base = f"file://{folder}/{name}"
    def late(*args):
        os.kill(os.getpid(), signal.SIGSTOP)
        replace(*args)
    publish._replace_lake_file = replace if before_check else late
    with leases.hold(name) as lease:
        lease.check()
        if before_check:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            second = Published(f"{base}/attempt=2", 2, "2")
            publish.write_pointer(spark, base, second, check=lease.check)
        except FencedError as error:
            print(error, flush=True)
        else:
            raise SystemExit("it was not told that the table is another's")

publish_second("checked", True)
publish_second("unchecked", False)
"""


def test_a_process_that_slept_for_longer_than_its_lease_does_not_move_the_pointer_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """If it sleeps between its last check and the write of the pointer, the table stops."""
    bases = {name: f"file://{tmp_path}/{name}" for name in ("checked", "unchecked")}
    for base in bases.values():
        write_pointer(spark, base, Published(f"{base}/attempt=1", 1, "1"))
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    leases = Leases(store, ttl_s=2.0)
    child = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED, str(Path(__file__).parents[2]), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until_still(child)
        for name, base in bases.items():
            path = f"{base}/attempt=3"
            with leases.hold(name, wait_s=60) as lease:
                write_pointer(spark, base, Published(path, 3, "3"), check=lease.check)
                assert current_path(base) == path
                os.kill(child.pid, signal.SIGCONT)
                wait_until_still(child)
        told, errors = child.communicate(timeout=120)
    finally:
        child.kill()

    assert child.returncode == 0, errors[-2000:]
    assert told.count("was lost: another process has taken it over") == 2
    assert current_path(bases["checked"]) == f"{bases['checked']}/attempt=3"
    assert current_path(bases["unchecked"]) == f"{bases['unchecked']}/attempt=2"
    context = cast("RunContext", SimpleNamespace(spark=spark, store=store))
    with pytest.raises(LostHistoryError, match=r"knows generation 3, .* names generation 2"):
        check_serving(context, third_generation(bases["unchecked"]))
    store.close()


def wait_until_still(child: subprocess.Popen[str]) -> None:
    """Wait until the process has suspended itself, or has ended."""
    deadline, process = time.monotonic() + 240, psutil.Process(child.pid)
    while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
        assert time.monotonic() < deadline, "the process did not stop itself"
        time.sleep(0.05)


def third_generation(base: str) -> TableRecord:
    """The table record that a process leaves which has taken the table over and published it."""
    now = datetime.now(timezone.utc)
    return table_record(
        table=TABLE,
        base_path=base,
        updated_at=now,
        generation=3,
        attempt=Attempt(uuid.uuid4(), now, f"{base}/attempt=3"),
    )


def test_another_installations_generation_is_not_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    base, here, there = tmp_path.as_uri(), Installation.new(), Installation.new()

    def publish(who: Installation, *taken_over: str) -> str:
        attempt = str(who.new_attempt())
        owner = Ownership.of(table_record(table=TABLE, taken_over=taken_over), who)
        shown = Published(attempt_path(base, attempt), 1, attempt)
        write_pointer(spark, base, shown, replaces=lambda one: owner.require(one, base))
        return attempt

    publish(here)
    former = publish(here)
    with pytest.raises(OtherInstallationError, match=former):
        publish(there)
    assert current_path(base, spark) == attempt_path(base, former)
    theirs = publish(there, former)
    with pytest.raises(OtherInstallationError, match=theirs):
        publish(here)


def test_the_shared_table_of_another_installation_is_not_joined(
    spark: SparkSession, tmp_path: Path
) -> None:
    base, here, there = tmp_path.as_uri(), Installation.new(), Installation.new()
    shard = Shard(of="sales.orders", name="eu", column="shard", base_path=base)
    paths = {who: attempt_path(base, who.shared_table(base)) for who in (here, there)}

    def path(who: Installation, *taken_over: str) -> str:
        record = table_record(table=TABLE, taken_over=taken_over)
        return shared_path(spark, shard, Ownership.of(record, who))

    assert (path(here), path(there)) == (paths[here], paths[there])
    theirs = str(there.shared_table(base))
    write_pointer(spark, base, Published(paths[there], 1, theirs))
    assert (path(here), path(there)) == (paths[here], paths[there])
    assert path(here, theirs) == paths[there]


def test_only_what_an_installation_made_is_deleted_of_a_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    base, here, there = (tmp_path / "t").as_uri(), Installation.new(), Installation.new()
    made = {who: [str(who.new_attempt()) for _ in range(2)] for who in (here, there)}
    for attempt in (*made[here], *made[there]):
        (tmp_path / "t" / f"attempt={attempt}" / ".hoodie").mkdir(parents=True)
    (tmp_path / "t" / f".{POINTER}.cut-short").touch()
    shown = made[there][0]
    write_pointer(spark, base, Published(attempt_path(base, shown), 1, shown))
    owners = {who: Ownership.of(table_record(table=TABLE), who) for who in made}

    left = delete_table(spark, base, owners[here])
    assert sorted(left) == sorted([POINTER, *(f"attempt={one}" for one in made[there])])
    assert current_path(base, spark) == attempt_path(base, shown)
    assert delete_table(spark, base, owners[here]) == left
    (tmp_path / "t" / "_readers").mkdir()
    assert delete_table(spark, base, owners[there]) == ["_readers"]
    assert delete_table(spark, base, owners[there], besides=["_readers"]) == []
    assert not (tmp_path / "t").exists()
    assert delete_table(spark, base, owners[there]) == []


def test_a_file_that_is_no_pointer_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for content in (b"{}", b'{"path": "\xe9"}'):
        (tmp_path / POINTER).write_bytes(content)
        with pytest.raises(LakeError, match=r"_current\.json (lacks|is not)"):
            current_path(tmp_path.as_uri(), spark)
    with pytest.raises(LakeError, match="cannot be accessed"):
        current_path("nowhere://x", spark)


def test_a_folder_is_deleted_with_all_that_is_in_it_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    gone, kept = tmp_path / "t" / "attempt=1", tmp_path / "t" / "attempt=10"
    url = f"file://{gone}"  # as_uri() would escape the sign, which Hadoop's paths do not
    for folder in (gone, kept):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "file").write_text("x")

    assert delete_path(spark, url)
    assert not delete_path(spark, url)

    assert not gone.exists()
    assert (kept / "deep" / "file").exists()


@pytest.mark.parametrize("root", ["file:///", "/", "file:/"])
def test_the_root_of_a_file_system_is_not_deleted(spark: SparkSession, root: str) -> None:
    with pytest.raises(LakeError, match="root"):
        delete_path(spark, root)


def test_a_place_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    probe(spark, (tmp_path / "new").as_uri())
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="cannot be accessed"):
        probe(spark, (tmp_path / "file" / "below").as_uri())
