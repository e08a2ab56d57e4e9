"""The files that the reader chooses, for states of a table that Spark cannot easily create."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from fastavro import writer as avro_writer
from pyarrow.fs import LocalFileSystem

from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import LakeColumn
from cdc.lake.pointer import POINTER, Pointer, Published
from schemas.table import TableId
from tests.handoffs import handed
from tests.unit.tributary_reader.hudi_folder import table
from tributary_reader import ReadError, open_table
from tributary_reader.commit_record import COMMIT_KEY
from tributary_reader.files import DataFile, as_of, data_files, require_written
from tributary_reader.storage import Entry, LocalStorage
from tributary_reader.timeline import Timeline

ORDERS = TableId("shop", "public", "orders")
A, B, C, D = (f"2026010112000{number}000" for number in range(4))


def noted(kind: str, **facts: Any) -> dict[str, Any]:
    """The metadata of a commit that has the product's record with these facts."""
    record = CommitRecord(kind, ORDERS, "a", **facts)  # type: ignore[arg-type]
    return {"extraMetadata": {COMMIT_KEY: record.to_json()}}


def names(folder: Path, as_of: str | None = None) -> list[str]:
    """The files of an open table; asserts that Python and Arrow find the same files."""
    found = open_table(str(folder), as_of=as_of).files
    assert found == open_table(str(folder), as_of=as_of, filesystem=LocalFileSystem()).files
    return [one.path.removeprefix(f"{folder}/") for one in found]


def test_the_newest_version_of_each_file_is_read(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", {B: {}, C: {}}, f"x-0_0_{A}.parquet", f"x-0_1_{B}.parquet")
    (folder / f"y-0_0_{A}.parquet").touch()
    (folder / f"y-0_0_{C}.parquet.crc").touch()
    assert names(folder) == [f"x-0_1_{B}.parquet", f"y-0_0_{A}.parquet"]


def test_files_of_unfinished_commits_are_not_read(tmp_path: Path) -> None:
    commits = {A: "commit.requested", B: {}, C: "inflight", D: "replacecommit.requested"}
    files = (f"{one}-0_0_{one}.parquet" for one in (A, B, C, D))
    assert names(table(tmp_path / "t", commits, *files)) == [f"{B}-0_0_{B}.parquet"]


def test_replaced_files_are_read_only_as_of_before(tmp_path: Path) -> None:
    replaced = {"partitionToReplaceFileIds": {"p=1": ["x-0"]}}
    files = (f"p=1/x-0_0_{A}.parquet", f"p=2/x-0_0_{A}.parquet", f"p=1/y-0_0_{B}.parquet")
    folder = table(tmp_path / "t", {A: {}, B: replaced}, *files)
    assert names(folder) == [files[2], files[1]]
    assert names(folder, A) == [files[0], files[1]]


ROLLBACK = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "fields": [
        {
            "name": "instantToRollback",
            "type": {
                "type": "record",
                "name": "HoodieInstantInfo",
                "fields": [
                    {"name": "commitTime", "type": "string"},
                    {"name": "action", "type": "string"},
                ],
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("kind", "state", "read"),
    [
        ("chunk", "rollback", True),
        ("chunk", "rollback.inflight", False),
        ("run", "rollback", False),
        (None, "rollback", False),
    ],
)
def test_only_a_chunk_whose_rollback_is_complete_may_be_undone(
    tmp_path: Path, kind: str | None, state: str, read: bool
) -> None:
    """A copy writes such a chunk again, but the rows of any other commit would be lost."""
    metadata = {} if kind is None else noted(kind)
    folder = table(tmp_path / "t", {A: {}, B: metadata, D: noted("run"), C: state})
    (folder / f"x-0_0_{A}.parquet").touch()
    plan = {"instantToRollback": {"commitTime": B, "action": "commit"}}
    with (folder / ".hoodie" / f"{C}.rollback.requested").open("wb") as file:
        avro_writer(file, ROLLBACK, [plan])
    if read:
        assert names(folder) == [f"x-0_0_{A}.parquet"]
        return
    with pytest.raises(ReadError, match=f"commit {B} of .* was rolled back while it completed"):
        open_table(str(folder))


def test_a_part_of_a_copy_is_never_read(tmp_path: Path) -> None:
    """Chunks lack rows, and between O and H, rows are from different times."""
    handoff = handed([LakeColumn("id", "integer", "int")])
    upto = {"handoff": replace(handoff, handoff_offsets={0: 9, 1: 4})}
    commits = {
        A: noted("chunk"),
        B: noted("handoff", offsets={0: 5, 1: 4}, **upto),
        C: noted("run", offsets={0: 8, 1: 7}, **upto),
        D: noted("run", offsets={0: 9, 1: 7}, **upto),
    }
    folder = table(tmp_path / "attempt=1", commits, f"x-0_0_{A}.parquet")
    for instant in (A, B, C):
        with pytest.raises(ReadError, match=f"as of {instant}: its copy was not complete"):
            open_table(str(folder), as_of=instant)
    assert names(folder, D) == names(folder) == [f"x-0_0_{A}.parquet"]


def test_a_generation_whose_copy_goes_on_is_not_read(tmp_path: Path) -> None:
    folder = table(tmp_path / "attempt=1", {A: noted("chunk")}, f"x-0_0_{A}.parquet")
    with pytest.raises(ReadError, match="is a part of a table"):
        open_table(str(folder))


def test_a_clustering_has_no_record_of_its_own(tmp_path: Path) -> None:
    handoff = replace(handed([LakeColumn("id", "integer", "int")]), handoff_offsets={0: 9})
    whole = noted("handoff", offsets={0: 9}, handoff=handoff)
    commits = {A: noted("chunk"), B: whole, C: {"partitionToReplaceFileIds": {}}}
    folder = table(tmp_path / "attempt=1", commits, f"x-0_0_{A}.parquet")
    assert names(folder, C) == names(folder, B) == [f"x-0_0_{A}.parquet"]
    with pytest.raises(ReadError, match="is a part of a table"):
        names(folder, A)


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", {A: {}}, version="8")
    with pytest.raises(ReadError, match="has version 8; this reader reads version 6 only"):
        open_table(str(folder))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="there is no Hudi table at"):
        open_table(str(tmp_path))
    with pytest.raises(ReadError, match="there is no Hudi table at"):
        open_table(str(tmp_path / "nothing"), filesystem=LocalFileSystem())
    with pytest.raises(ReadError, match="is not on this machine"):
        open_table("s3a://bucket/t")
    with pytest.raises(ReadError, match="has no commit"):
        open_table(str(table(tmp_path / "t", {})))


def test_a_commit_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", {B: {"partitionToReplaceFileIds": {}}})
    (folder / ".hoodie" / f"{B}.replacecommit").write_text("{")
    with pytest.raises(ReadError, match=f"commit {B} of the Hudi table at .* cannot be read"):
        open_table(str(folder))


def wrote(*files: str, **more: str) -> dict[str, Any]:
    return {"partitionToWriteStats": {"": [{"path": file, **more} for file in files]}}


def test_a_file_that_the_newest_commit_wrote_and_that_is_missing_is_an_error(
    tmp_path: Path,
) -> None:
    versions = [f"p=1/x-0_0_{one}.parquet" for one in (A, B)]
    folder = table(tmp_path / "t", {A: wrote(versions[0]), B: wrote(versions[1])}, versions[0])
    with pytest.raises(ReadError, match=f"version {B} of file p=1/x-0 is missing"):
        names(folder)
    assert names(folder, A) == [versions[0]]
    (folder / versions[1]).touch()
    assert names(folder) == [versions[1]]


def test_a_file_that_a_later_commit_replaced_by_its_next_version_is_missed(tmp_path: Path) -> None:
    first, second = (f"x-0_0_{one}.parquet" for one in (A, B))
    commits = {A: {}, B: wrote(second, f"y-0_0_{B}.parquet", prevCommit=A)}
    folder = table(tmp_path / "t", commits, first, second, f"y-0_0_{A}.parquet")
    timeline = Timeline(LocalStorage(), str(folder))

    def check(instant: str) -> None:
        files = as_of(data_files(LocalStorage(), str(folder)), timeline, instant)
        require_written(files, timeline, instant, timeline.upto(B))

    check(A)
    with pytest.raises(ReadError, match=f"version {B} of file y-0 is missing"):
        check(B)
    (folder / first).unlink()
    with pytest.raises(ReadError, match=f"version {A} of file x-0 is missing"):
        check(A)


def test_a_file_that_was_replaced_or_began_later_is_not_missed(tmp_path: Path) -> None:
    replaced = {"partitionToReplaceFileIds": {"": ["x-0"]}, **wrote(f"y-0_0_{B}.parquet")}
    commits = {A: wrote(f"x-0_0_{A}.parquet", prevCommit="null"), B: replaced}
    folder = table(tmp_path / "t", commits, f"y-0_0_{B}.parquet")
    timeline = Timeline(LocalStorage(), str(folder))
    files = as_of(data_files(LocalStorage(), str(folder)), timeline, B)
    require_written(files, timeline, B, timeline.upto(B))
    with pytest.raises(ReadError, match=f"version {A} of file x-0"):
        require_written([], timeline, A, timeline.upto(B))


def test_a_plan_that_is_half_written_is_named(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", {A: {}})
    plan = folder / ".hoodie" / f"{B}.clean.requested"
    plan.touch()
    assert names(folder) == []
    plan.write_bytes(b"Obj\x01\x02")
    with pytest.raises(ReadError, match=f"{B}.clean.requested of the Hudi table at"):
        open_table(str(folder))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run the block as a user other than root, so that the permissions of files apply."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_that_cannot_be_listed_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        file = f"p=1/x-0_0_{A}.parquet"
        folder = table(Path(place, "t"), {A: {}}, file)
        with unprivileged():
            assert names(folder) == [file]
        (folder / "p=1").chmod(0)
        with unprivileged(), pytest.raises(ReadError, match="p=1 cannot be listed: Permission"):
            open_table(str(folder))


def test_a_time_reads_the_generation_that_readers_saw_then(tmp_path: Path) -> None:
    first, second = tmp_path / "attempt=1", tmp_path / "attempt=2"
    table(first, {A: {}}, f"x-0_0_{A}.parquet")
    table(second, {A: {}, D: {}}, f"y-0_0_{A}.parquet")
    shown = [
        Published(f"file://{folder}", number, str(number), at)
        for number, (folder, at) in enumerate(((first, _time(B)), (second, _time(C))), 1)
    ]
    pointer = Pointer.of(shown[1], (shown[0],))
    (tmp_path / POINTER).write_text(pointer.to_json())
    assert open_table(str(tmp_path)).path == str(second)
    assert open_table(str(tmp_path), as_of=_time(C)).path == str(second)
    assert open_table(str(tmp_path), as_of=B).path == str(first)
    with pytest.raises(ReadError, match="the generation that readers saw then is removed"):
        open_table(str(tmp_path), as_of=A)


def _time(instant: str) -> datetime:
    return datetime.strptime(f"{instant}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)


@pytest.mark.parametrize("as_of", ["2026-01-01", _time(A).replace(tzinfo=None)])
def test_a_time_without_a_zone_is_refused(tmp_path: Path, as_of: Any) -> None:
    with pytest.raises(ReadError, match="is no instant"):
        open_table(str(tmp_path), as_of=as_of)


@pytest.mark.parametrize(
    "path", [".hoodie/a_b_1.parquet", ".x_0_1.parquet", "a.parquet", "x_0_1.log", "p=1/.meta"]
)
def test_other_files_are_no_data(path: str) -> None:
    assert DataFile.of("/t", Entry(path, 1)) is None


def test_the_reader_lists_files_without_spark_and_without_arrow() -> None:
    code = (
        "import sys, tributary_reader.snapshot;"
        "print([one for one in ('pyspark', 'py4j', 'pyarrow') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
