"""Writes the results, errors and progress of commands, for people or for programs."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Task as RichTask
from rich.table import Table
from rich.text import Text

from cdc.runtime import progress as protocol
from schemas.errors import TributaryError
from schemas.table import TableId

PLAIN_INTERVAL_S = 5.0
"""Seconds between two progress lines of one task if stderr is no terminal."""

_UNLIMITED_WIDTH = 10_000
_MOMENT_S = 1.0
_FEW = 1000
"""Number of a task's units, for example rows, below which no rate is shown.

Most of a short task's time passes before its first unit, so a rate would mislead.
"""


class Output(str, Enum):
    """The values of ``--output``."""

    TEXT = "text"
    JSON = "json"


class Renderer:
    """Writes a command's results to stdout, and messages to stderr.

    In JSON output, an error that ends the command counts as a result.

    Args:
        output: Whether results are text for people, or JSON documents, one per line.
    """

    def __init__(self, output: Output = Output.TEXT) -> None:
        self.output = output

    @property
    def json(self) -> bool:
        """Whether a command's results are written as JSON, for a program."""
        return self.output is Output.JSON

    def document(self, value: object) -> None:
        """Write a command's result as one line of JSON; write nothing in text output."""
        if self.json:
            sys.stdout.write(to_json(value) + "\n")
            sys.stdout.flush()

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """Write a line of a command's result; write nothing in JSON output."""
        if not self.json:
            _console(sys.stdout).print(Text(to_paste(text), style=style or ""))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: str = ""
    ) -> None:
        """Write a command's table of results; write nothing in JSON output.

        Args:
            columns: The heads of the columns.
            rows: Cells, shown as text; ``None`` is shown as a dash.
            numbers: The heads of columns to align right, separated by commas.
        """
        if self.json:
            return
        right = numbers.split(",")
        grid = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            grid.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
        console = _console(sys.stdout)
        with console.capture() as captured:
            console.print(grid)
        # The last column is as wide as its longest cell; shorter cells are padded.
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def note(self, text: str) -> None:
        """Write to stderr a message that is not part of a command's result."""
        _console(sys.stderr).print(Text(text))

    def warning(self, text: str) -> None:
        """Write a command's warning to stderr."""
        _console(sys.stderr).print(Text.assemble(("Warning: ", "bold yellow"), text))

    def error(self, error: TributaryError) -> None:
        """Write a command's error and remedy, as text to stderr or as JSON to stdout."""
        if self.json:
            self.document(error.to_dict())
            return
        self.problem("Error", error.message, error.remedy)

    def problem(self, kind: str, message: str, remedy: str, tables: Sequence[TableId] = ()) -> None:
        """Write a command's problem and remedy to stderr; write nothing in JSON output.

        Args:
            kind: The word or words before the message, for example ``Error``.
            message: What is wrong.
            remedy: What to do.
            tables: The tables that have the problem, if there are several.
        """
        if self.json:
            return
        console = _console(sys.stderr)
        style = "bold red" if kind == "Error" else "bold yellow"
        console.print(Text.assemble((f"{kind}: ", style), message))
        if len(tables) > 1:
            console.print(Text.assemble(("Tables: ", "bold"), ", ".join(map(str, tables))))
        console.print(Text.assemble(("What to do: ", "bold"), to_paste(remedy)))

    @contextmanager
    def progress(self) -> Iterator[protocol.Progress]:
        """Show a command's progress on stderr: bars on a terminal, plain lines elsewhere."""
        if not sys.stderr.isatty():
            yield PlainProgress()
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Amount(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
        )
        with Progress(*columns, console=_console(sys.stderr), transient=True) as live:
            yield BarProgress(live)


def to_json(value: object) -> str:
    """Render a command's value, which can contain times, tables and errors, as one line of JSON."""
    return json.dumps(_plain_values(value), ensure_ascii=False)


def _plain_values(value: object) -> object:
    """Render a command's value as plain values that JSON can represent."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, TableId):
        return str(value)
    if isinstance(value, TributaryError):
        return value.to_dict()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(_plain_values(key)): _plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain_values(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain_values(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    return str(value)


_COMMAND = re.compile(r"`(tributary [^`]*)`")
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"]|"")*")+')


def to_paste(text: str) -> str:
    """Render a message so that its ``tributary`` commands can be pasted into a shell.

    A shell removes double quotes. So each word with double quotes is put in single quotes.
    """
    return _COMMAND.sub(lambda found: f"`{_WORD.sub(_word_for_shell, found[1])}`", text)


def _word_for_shell(word: re.Match[str]) -> str:
    """Render a word of a command for a shell: in single quotes if it has double quotes."""
    return shlex.quote(word[0]) if '"' in word[0] else word[0]


def describe(
    count: int, total: int | None, unit: str, elapsed_s: float, *, finished: bool = False
) -> str:
    """Render a task's progress as a command prints it.

    For example: ``600,000 of 2,000,000 rows, 150,000 rows/s, 9 s left``.

    The text of a finished task has no total, since a total is an estimate. The text of a task with
    few units has no rate.
    """
    if not count and total is None:
        return f"{seconds(elapsed_s)}"
    counted = f"{count:,} {unit}" if finished or total is None else f"{count:,} of {total:,} {unit}"
    parts = [counted]
    rate = count / elapsed_s if elapsed_s > 0 and count >= _FEW else 0.0
    if rate:
        parts.append(f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s")
    if finished:
        parts.append(f"took {seconds(elapsed_s)}")
    elif rate and total is not None and total > count:
        parts.append(f"{seconds((total - count) / rate)} left")
    return ", ".join(parts)


def seconds(duration_s: float) -> str:
    """Render a duration as text, for example ``9 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(duration_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Return a number of bytes as commands print it, for example ``12 MiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


class BarProgress:
    """Shows tasks as bars on a terminal."""

    def __init__(self, live: Progress) -> None:
        self._live = live

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> protocol.Task:
        """Begin a task that a bar on the terminal shows."""
        return _BarTask(self._live, task, total, unit)


class _BarTask:
    def __init__(self, live: Progress, name: str, total: int | None, unit: str) -> None:
        self._live = live
        self._id = live.add_task(name, total=total, unit=unit, note="")

    def advance(self, count: int = 1) -> None:
        self._live.advance(self._id, count)

    def note(self, text: str) -> None:
        self._live.update(self._id, note=text)

    def done(self) -> None:
        self._live.remove_task(self._id)


class _Amount(ProgressColumn):
    """The part of a progress bar that shows the units done, units per second, and time left."""

    def render(self, task: RichTask) -> Text:
        total = None if task.total is None else int(task.total)
        unit = str(task.fields["unit"])
        return Text(describe(int(task.completed), total, unit, task.elapsed or 0.0))


class PlainProgress:
    """Shows tasks as plain lines, for files and pipes.

    Args:
        interval_s: Seconds between two lines of one task.
        stream: Destination of the lines; stderr by default.
    """

    def __init__(
        self, *, interval_s: float = PLAIN_INTERVAL_S, stream: TextIO | None = None
    ) -> None:
        self._interval_s = interval_s
        self._stream = stream

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> protocol.Task:
        """Begin a task that plain lines show."""
        return _PlainTask(task, total, unit, self._interval_s, self._stream or sys.stderr)


class _PlainTask:
    def __init__(
        self, name: str, total: int | None, unit: str, interval_s: float, stream: TextIO
    ) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._interval_s, self._stream = interval_s, stream
        self._count, self._note, self._ended, self._said = 0, "", False, False
        self._began = time.monotonic()
        self._spoke = self._began
        self._lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        with self._lock:
            self._count += count
            self._say_in_turn()

    def note(self, text: str) -> None:
        with self._lock:
            self._note = text
            if not self._said and time.monotonic() - self._began >= _MOMENT_S:
                self._say()
            else:
                self._say_in_turn()

    def done(self) -> None:
        with self._lock:
            if not self._ended:
                self._ended = True
                if not self._passed_unseen():
                    self._say(finished=True)

    def _passed_unseen(self) -> bool:
        """Whether a task ended within a moment, without progress and without a printed line."""
        silent = not self._count and not self._said
        return silent and time.monotonic() - self._began < _MOMENT_S

    def _say_in_turn(self) -> None:
        """Print a line of the task if the interval has passed since the task's last line."""
        if time.monotonic() - self._spoke >= self._interval_s:
            self._say()

    def _say(self, *, finished: bool = False) -> None:
        """Print a line with the task's progress; add the task's note unless the task has ended."""
        now = time.monotonic()
        elapsed = now - self._began
        text = describe(self._count, self._total, self._unit, elapsed, finished=finished)
        if finished:
            # Tasks end in `finally`. If an exception is being raised, the task is not done.
            text = f"{'done' if sys.exc_info()[0] is None else 'stopped'}, {text}"
        elif self._note:
            text = f"{text}; {self._note}"
        self._spoke, self._said = now, True
        self._stream.write(f"{self._name}: {text}\n")
        self._stream.flush()


def _console(stream: TextIO) -> Console:
    """Return a console to render to a stream; lines in a file or a pipe have no maximum width."""
    width: dict[str, Any] = {} if stream.isatty() else {"width": _UNLIMITED_WIDTH}
    return Console(file=stream, highlight=False, soft_wrap=True, **width)
