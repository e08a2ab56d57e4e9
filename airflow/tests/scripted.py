"""A program that answers like `tributary`, as a test says; it notes how it was called."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python}
import json, os, signal, sys, time
from pathlib import Path
folder = Path({folder!r})
words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([words, sorted(os.environ), os.getcwd()]) + chr(10))
answers = json.loads((folder / "answers.json").read_text())
def stopped(number, frame):
    (folder / "stopped").write_text("in peace")
    sys.exit(128 + number)
for one in answers:
    if all(word in words for word in one["when"]):
        used = folder / f"used-{{answers.index(one)}}"
        if one["times"] is not None:
            count = int(used.read_text()) if used.exists() else 0
            if count >= one["times"]:
                continue
            used.write_text(str(count + 1))
        signal.signal(signal.SIGTERM, signal.SIG_IGN if one["deaf"] else stopped)
        (folder / "began").write_text(str(os.getpid()))
        sys.stderr.write(one["stderr"])
        sys.stderr.flush()
        time.sleep(one["seconds"])
        for document in one["documents"]:
            print(document if isinstance(document, str) else json.dumps(document), flush=True)
        sys.exit(one["code"])
sys.exit(99)
"""


@dataclass(frozen=True)
class Scripted:
    """The program.

    Args:
        folder: Holds the program, its answers, and its notes.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.file.write_text(_PROGRAM.format(python=sys.executable, folder=str(self.folder)))
        self.file.chmod(0o755)
        self._save([])

    @property
    def file(self) -> Path:
        return self.folder / "tributary"

    def answer(
        self,
        *when: str,
        code: int = 0,
        documents: tuple[Any, ...] = (),
        stderr: str = "",
        seconds: float = 0.0,
        times: int | None = None,
        deaf: bool = False,
    ) -> Scripted:
        """Let calls with all of these words have an answer; the first that fits is taken."""
        one = {
            "when": when,
            "code": code,
            "documents": documents,
            "stderr": stderr,
            "seconds": seconds,
            "times": times,
            "deaf": deaf,
        }
        self._save([*json.loads(self._answers.read_text()), one])
        return self

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call, without those that all calls have."""
        return [self._plain(words) for words, _, _ in self._notes]

    @property
    def environments(self) -> list[list[str]]:
        """The names of each call's environment."""
        return [names for _, names, _ in self._notes]

    @property
    def folders(self) -> list[str]:
        """The working directory of each call."""
        return [folder for _, _, folder in self._notes]

    @property
    def stopped(self) -> bool:
        """Whether a call has ended in peace after SIGTERM."""
        return (self.folder / "stopped").exists()

    @property
    def pid(self) -> int | None:
        """The process of the newest call that had an answer."""
        file = self.folder / "began"
        return int(file.read_text()) if file.exists() and file.read_text() else None

    @property
    def _answers(self) -> Path:
        return self.folder / "answers.json"

    @property
    def _notes(self) -> list[Any]:
        calls = self.folder / "calls"
        return (
            [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        )

    def _save(self, answers: list[Any]) -> None:
        self._answers.write_text(json.dumps(answers))

    @staticmethod
    def _plain(words: list[str]) -> list[str]:
        place = words.index("--output")
        rest = words[place + 2 :]
        return words[:place] + (rest[2:] if rest[:1] == ["--config"] else rest)


BOUND_S = 20.0


def wait_until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
