"""Runs `tributary` as a child process, from a task and from the triggerer's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tributary_airflow.command import Program, environment

MOST_OUTPUT = 64 * 1024 * 1024
"""Maximum kept bytes of standard output. The document of 10,000 tables is about 20 MB."""
LONGEST_LINE = 2000
SILENCE_S = 30.0
"""Seconds without a line of progress after which the log of the task gets a sign of life."""
MOST_LINES = 5000
"""Maximum number of lines of one command that the log of a task gets."""

_PROGRESS = re.compile(
    r"(?P<shown>(?:copy|run|compare|wait for|restart connector|open|examine tables|checks|record"
    r"|other copies)\b[^;]{0,300}:"
    r" (?:(?:done|stopped), )?\d[\d,.]*(?: of [\d,]+)? [a-z]+(?:,? [\w,./ ]*)?)(?:;.*)?"
)
"""A line of progress such as ``copy shop:public.orders: 5 of 9 chunks, took 3 s; a note``."""
_LOGGED = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>WARNING|ERROR|CRITICAL) (?P<name>[\w.]+): "
)
"""The beginning of a message that the command logs."""


@dataclass(frozen=True)
class Ran:
    """How a command ended.

    Args:
        words: The command with its options and tables.
        code: The exit code; 128 plus the signal's number if a signal ended the command.
        documents: The JSON documents of its standard output.
        readable: Whether all of standard output was JSON, and not more than is kept.
    """

    words: tuple[str, ...]
    code: int
    documents: tuple[Any, ...] = ()
    readable: bool = True

    @property
    def name(self) -> str:
        """The command, for messages."""
        return f"tributary {' '.join(self.words)}"

    @property
    def document(self) -> dict[str, Any]:
        """The last JSON object that the command printed, its result; empty without one."""
        newest = self.documents[-1] if self.documents else {}
        return newest if isinstance(newest, dict) else {}


def shown(line: str, *, messages: bool) -> str | None:
    """Return the part of a line of standard error that the task's log gets; None for no part.

    A line of progress has only counts and names of tables, so the log gets it. The log gets only
    the level and the logger of a logged message, since the message can quote a server, and so
    values of rows. Other lines are left out.

    Args:
        line: The line.
        messages: Whether the log gets every line as it is.
    """
    text = line.strip()[:LONGEST_LINE]
    if not text:
        return None
    if messages:
        return text
    if (found := _PROGRESS.fullmatch(text)) is not None:
        return found["shown"]
    if (logged := _LOGGED.match(text)) is not None:
        return f"{logged['level']} of {logged['name']}"
    return None


def documents(output: bytes, *, whole: bool) -> tuple[tuple[Any, ...], bool]:
    """Return the JSON documents in standard output, and whether they are all of the output."""
    found, readable = list[Any](), whole
    for line in output.splitlines():
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            readable = False
    return tuple(found), readable


@dataclass
class Running:
    """A command of a task while it runs.

    Args:
        program: Where `tributary` is.
        words: The command with its options and tables.
        report: Takes the lines for the log of the task.
        silence_s: Seconds without a line after which the log gets a sign of life.
    """

    program: Program
    words: tuple[str, ...]
    report: Callable[[str], object]
    silence_s: float = SILENCE_S
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _lines: queue.Queue[bytes | None] = field(default_factory=queue.Queue, init=False)
    _output: bytearray = field(default_factory=bytearray, init=False)
    _whole: bool = field(default=True, init=False)
    _began: float = field(default=0.0, init=False)

    def run(self) -> Ran:
        """Run the command to its end.

        However this call ends, the guard ends the command, so that the command does not outlive the
        call.
        """
        self._began = time.monotonic()
        self._process = process = subprocess.Popen(  # noqa: S603 - a vector, without a shell
            self.program.guarded(*self.words),
            cwd=self.program.directory,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        readers = [
            threading.Thread(target=self._read_output, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_lines, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            self._follow()
            readers[0].join(self.program.stop_s)
            code = process.wait(self.program.stop_s)
        finally:
            self._release(process)
        code = code if code >= 0 else 128 - code
        found, readable = documents(bytes(self._output), whole=self._whole)
        return Ran(self.words, code, found, readable)

    def stop(self) -> None:
        """Ask the command to end, and wait for that; the guard kills it after the bound."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.program.stop_s + 5.0)

    def _follow(self) -> None:
        """Report the command's lines of standard error until there are no more."""
        reported = 0
        while True:
            try:
                line = self._lines.get(timeout=self.silence_s)
            except queue.Empty:
                elapsed = time.monotonic() - self._began
                self.report(f"tributary {self.words[0]}: still running after {elapsed:.0f} s")
                continue
            if line is None:
                return
            text = shown(line.decode("utf-8", "replace"), messages=self.program.messages)
            if text is not None and reported < MOST_LINES:
                reported += 1
                self.report(text)

    def _read_output(self, stream: IO[bytes]) -> None:
        for chunk in _chunks(stream):
            room = MOST_OUTPUT - len(self._output)
            self._output += chunk[:room]
            self._whole = self._whole and len(chunk) <= room

    def _read_lines(self, stream: IO[bytes]) -> None:
        try:
            for line in stream:
                self._lines.put(line)
        finally:
            self._lines.put(None)

    def _release(self, process: subprocess.Popen[bytes]) -> None:
        """Make the guard end the command if it still runs, and close the streams."""
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if process.poll() is None:
            self.stop()
        for stream in (process.stdout, process.stderr):
            if stream is not None and process.poll() is not None:
                stream.close()


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    read = getattr(stream, "read1", stream.read)
    while chunk := read(65536):
        yield chunk


async def ask(program: Program, words: tuple[str, ...], *, bound_s: float) -> Ran | None:
    """Run a read-only command from an event loop; return how it ended, or None if it took too long.

    Args:
        program: Where `tributary` is.
        words: The command with its options and tables.
        bound_s: Maximum duration of the command, in seconds.
    """
    process = await asyncio.create_subprocess_exec(
        *program.guarded(*words),
        cwd=program.directory,
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, code = await asyncio.wait_for(_all_of(process), bound_s)
    except asyncio.TimeoutError:
        _let_go(process)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), program.stop_s + 5.0)
        return None
    finally:
        _let_go(process)
    found, readable = documents(output[:MOST_OUTPUT], whole=len(output) <= MOST_OUTPUT)
    return Ran(words, code if code >= 0 else 128 - code, found, readable)


def _let_go(process: asyncio.subprocess.Process) -> None:
    """Make the guard end the command, without a wait, since the trigger can be cancelled."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


async def _all_of(process: asyncio.subprocess.Process) -> tuple[bytes, int]:
    """Return a process's output and exit code. Output beyond the limit is read, and not kept."""
    output = bytearray()
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while chunk := await process.stdout.read(65536):
        output += chunk[: max(0, MOST_OUTPUT + 1 - len(output))]
    return bytes(output), await process.wait()
