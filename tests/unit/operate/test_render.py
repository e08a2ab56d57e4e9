from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from uuid import UUID

import pytest

from cdc.errors import KafkaError
from cdc.runtime.progress import NullProgress, Progress
from cdc.store.table_state import State
from operate.render import (
    Output,
    PlainProgress,
    Renderer,
    describe,
    seconds,
    to_json,
    to_paste,
)
from schemas.table import TableId

ROOT = Path(__file__).parents[3]
HOSTILE = "we[bold]ird[/] :smile: " + "x" * 300


@dataclass(frozen=True)
class Value:
    table: TableId
    state: State
    at: datetime
    offsets: dict[int, int]
    path: Path


def test_json_takes_the_projects_values() -> None:
    value = Value(
        TableId("shop", "public", "orders"),
        State.INCREMENTAL,
        datetime(2026, 1, 2, tzinfo=timezone.utc),
        {0: 5},
        Path("/x"),
    )
    error = KafkaError("down", remedy="wait", topic="t")
    assert json.loads(to_json({"value": value, "ids": (UUID(int=1), {1}), "error": error})) == {
        "value": {
            "table": "shop:public.orders",
            "state": "incremental",
            "at": "2026-01-02T00:00:00+00:00",
            "offsets": {"0": 5},
            "path": "/x",
        },
        "ids": ["00000000-0000-0000-0000-000000000001", [1]],
        "error": {
            "error": "KafkaError",
            "message": "down",
            "remedy": "wait",
            "context": {"topic": "t"},
        },
    }


def test_json_output_writes_documents_only(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer(Output.JSON)
    renderer.line("for people")
    renderer.table(("a",), [("b",)])
    renderer.document({"a": "ä\n"})
    renderer.document([1])
    assert capsys.readouterr().out == '{"a": "ä\\n"}\n[1]\n'


def test_text_output_writes_no_documents(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer()
    renderer.document({"a": 1})
    renderer.line("for people")
    assert capsys.readouterr().out == "for people\n"


def test_a_table_shows_cells_whole_and_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(HOSTILE, 5, None), ("short", 12345, State.PAUSED.value)]
    Renderer().table(("table", "rows", "state"), rows, numbers="rows")
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["table", "rows", "state"]
    assert first.startswith(HOSTILE)
    assert first.split()[-2:] == ["5", "-"]
    assert second.split() == ["short", "12345", "paused"]
    assert first.index(" 5 ") + 1 == second.index("12345") + 4  # numbers align on the right


def test_notes_and_warnings_stay_out_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer(Output.JSON)
    renderer.note(HOSTILE)
    renderer.warning("careful [bold]")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"{HOSTILE}\nWarning: careful [bold]\n"


def test_an_error_shows_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = KafkaError("topic t[0] is gone", remedy="Create it.", topic="t")
    Renderer().error(error)
    shown = capsys.readouterr()
    assert shown.err == "Error: topic t[0] is gone\nWhat to do: Create it.\n"
    assert shown.out == ""
    Renderer(Output.JSON).error(error)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == error.to_dict()
    assert shown.err == ""


@pytest.mark.parametrize(
    ("count", "total", "elapsed", "finished", "text"),
    [
        (0, None, 12.4, False, "12 s"),
        (0, 2_000_000, 1.0, False, "0 of 2,000,000 rows"),
        (600_000, 2_000_000, 4.0, False, "600,000 of 2,000,000 rows, 150,000 rows/s, 9 s left"),
        (2_000_000, 2_000_000, 100.0, False, "2,000,000 of 2,000,000 rows, 20,000 rows/s"),
        (3_000, None, 2.0, False, "3,000 rows, 1,500 rows/s"),
        (2_000, 2_550, 1_000.0, True, "2,000 rows, 2.0 rows/s, took 16 min 40 s"),
        # A few rows make no rate, and no time that is left.
        (6, 2_550, 60.0, False, "6 of 2,550 rows"),
        (6, 2_550, 60.0, True, "6 rows, took 1 min 0 s"),
        (5, 3, 1.0, False, "5 of 3 rows"),
        (1, 1000, 0.0, False, "1 of 1,000 rows"),
    ],
)
def test_how_far_a_task_is(
    count: int, total: int | None, elapsed: float, finished: bool, text: str
) -> None:
    assert describe(count, total, "rows", elapsed, finished=finished) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_as_a_person_says_them(duration: float, text: str) -> None:
    assert seconds(duration) == text


def test_plain_lines_come_in_turn_and_at_the_end() -> None:
    stream = io.StringIO()
    task = PlainProgress(interval_s=0.2, stream=stream).start("copy shop:public.orders", 10_000)
    for _ in range(5):
        task.advance(1000)
    assert stream.getvalue() == ""
    time.sleep(0.25)
    task.advance(1000)
    task.done()
    task.done()
    first, last = stream.getvalue().splitlines()
    assert first.startswith("copy shop:public.orders: 6,000 of 10,000 rows, ")
    assert first.endswith("s left")
    assert last.startswith("copy shop:public.orders: done, 6,000 rows, ")


def test_a_wait_says_soon_what_it_waits_for() -> None:
    stream = io.StringIO()
    task = PlainProgress(interval_s=60, stream=stream).start("wait for the replica", None, "")
    task.note("12 MB behind")
    assert stream.getvalue() == "", "it may be over at once"
    time.sleep(1.1)
    for lag in (8, 4):
        task.note(f"{lag} MB behind")
    task.done()
    first, last = stream.getvalue().splitlines()
    assert first == "wait for the replica: 1 s; 8 MB behind"
    assert last == "wait for the replica: done, 1 s"


def test_a_task_that_an_error_ends_is_not_done() -> None:
    stream = io.StringIO()
    task = PlainProgress(stream=stream).start("copy", 201)

    def work() -> None:
        try:
            task.advance(3)
            raise KafkaError("down", remedy="wait")
        finally:
            task.done()

    with pytest.raises(KafkaError):
        work()
    assert stream.getvalue() == "copy: stopped, 3 rows, took 0 s\n"


def test_a_wait_that_is_over_at_once_says_nothing() -> None:
    stream = io.StringIO()
    PlainProgress(stream=stream).start("wait for the replica", None, "checks").done()
    assert stream.getvalue() == ""


def test_plain_progress_counts_right_from_many_threads() -> None:
    stream = io.StringIO()
    task = PlainProgress(interval_s=0.0, stream=stream).start("copy", None)

    def advance() -> None:
        for _ in range(200):
            task.advance()

    threads = [threading.Thread(target=advance) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    task.done()
    assert "done, 1,600 rows" in stream.getvalue().splitlines()[-1]


def test_without_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Renderer(Output.JSON).progress() as progress:
        task = progress.start("copy", 10)
        task.advance(10)
        task.done()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("copy: done, 10 rows")


def test_on_a_terminal_progress_is_bars() -> None:
    script = """
from operate.render import Renderer
with Renderer().progress() as progress:
    task = progress.start("copy [bold]orders", 1000)
    task.note("chunk [1] of 2")
    task.advance(500)
    import time; time.sleep(0.3)
    task.done()
"""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=follower,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150"},
    ) as process:
        os.close(follower)
        shown = b""
        try:
            while block := os.read(leader, 4096):
                shown += block
        except OSError:
            pass  # Linux's answer at the end of a terminal whose other side has closed
    os.close(leader)
    assert process.returncode == 0
    text = shown.decode()
    assert "copy [bold]orders" in text
    assert "500 of 1,000 rows" in text
    assert "chunk [1] of 2" in text


def test_progress_can_be_ignored() -> None:
    progress: Progress = NullProgress()
    task = progress.start("copy")
    task.advance(5)
    task.note("x")
    task.done()


def test_commands_of_a_remedy_can_be_pasted() -> None:
    odd = TableId("shop", "My S", 'q"uote.[0]')
    text = to_paste(f"table {odd}: run `tributary retry {odd} shop:a.b`, or `other`.")
    assert f"table {odd}: " in text
    (command,) = re.findall(r"`(tributary .*?)`,", text)
    words = shlex.split(command)
    assert words == ["tributary", "retry", str(odd), "shop:a.b"]
    assert TableId.parse(words[2]) == odd
