from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.errors import LakeError
from cdc.lake.pointer import POINTER
from cdc.lake.publish import (
    current_path,
    delete_path,
    probe,
    read_pointer,
    write_pointer,
)

FOLDERS = ["plain", "with space", "100%25", "hash#1", "a~2eb", "ünï", "x" * 200]


@pytest.mark.parametrize("name", FOLDERS)
def test_the_pointer_moves_from_generation_to_generation(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    base = f"file://{tmp_path}/{name}"
    assert current_path(base, spark) is None

    write_pointer(spark, base, path=f"{base}/attempt=1", generation=1, attempt="1")
    write_pointer(spark, base, path=f"{base}/attempt=2", generation=2, attempt="2")

    pointer = read_pointer(spark, base)
    assert pointer is not None
    shown = pointer.current
    assert (shown.path, shown.generation, shown.attempt) == (f"{base}/attempt=2", 2, "2")
    assert datetime.now(timezone.utc) - shown.published_at < timedelta(minutes=5)
    assert current_path(base) == shown.path, "what Spark wrote is found without it"
    kept = {path.name for path in (tmp_path / name).iterdir() if not path.name.endswith(".crc")}
    assert kept == {POINTER}, "a staged pointer was left behind"


def test_readers_always_see_a_generation_while_hundreds_are_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = f"file://{tmp_path}/t"
    paths = [f"{base}/attempt={number}" for number in range(300)]
    for folder in paths[:2]:
        Path(folder.removeprefix("file://")).mkdir(parents=True)
    write_pointer(spark, base, path=paths[0], generation=1, attempt="0")
    seen: list[str | None] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(current_path(base))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number, path in enumerate(paths[1:], 1):
            write_pointer(spark, base, path=path, generation=number + 1, attempt=str(number))
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
