"""The examples of `deploy/systemd` and `deploy/cron`: their commands parse."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from operate.cli.options import Invocation
from tests.unit.operate.documents import ROOT, ROOT_COMMAND

SYSTEMD, CRON = ROOT / "deploy" / "systemd", ROOT / "deploy" / "cron" / "tributary"
TIMERS = sorted(SYSTEMD.glob("*.timer"))
ANALYZE = shutil.which("systemd-analyze")
PROGRAM = "/opt/tributary/bin/tributary"


def jobs() -> dict[str, list[str]]:
    """The words of each job, split by blanks and without a shell's wildcards, as systemd does."""
    files = sorted((SYSTEMD / "jobs").iterdir())
    return {
        file.name: file.read_text().strip().removeprefix("TRIBUTARY_JOB=").split() for file in files
    }


def lines() -> list[list[str]]:
    """The words of each command in the crontab, as cron's shell splits them."""
    commands = re.findall(rf"{PROGRAM} (.*?) >>", CRON.read_text())
    return [shlex.split(command) for command in commands]


@pytest.mark.parametrize("words", [*jobs().values(), *lines()], ids=" ".join)
def test_the_commands_parse(words: list[str]) -> None:
    found, rest = ROOT_COMMAND.commands[words[0]], words[1:]
    parent = typer.Context(ROOT_COMMAND, obj=Invocation())
    while isinstance(found, TyperGroup):
        found = found.commands[rest.pop(0)]
    with found.make_context(words[0], rest, parent=parent):
        pass


def test_systemd_and_cron_have_the_same_jobs() -> None:
    assert sorted(jobs().values()) == sorted(lines())


@pytest.mark.parametrize(("code", "mailed"), [(0, ""), (3, "exit code 3, see {log}\n")])
def test_cron_mails_only_failures(tmp_path: Path, code: int, mailed: str) -> None:
    """It mails all output of a job, and a run prints its progress."""
    commands = re.findall(rf"{PROGRAM} .*", CRON.read_text())
    assert len(commands) == len(jobs())
    program = tmp_path / "tributary"
    program.write_text(f"#!/bin/sh\necho told\necho progress >&2\nexit {code}\n")
    program.chmod(0o755)
    for command in commands:
        own = command.replace(PROGRAM, str(program)).replace("/var/log/tributary", str(tmp_path))
        log = re.findall(r">>(\S+)", own)[0]
        done = subprocess.run(["sh", "-c", own], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (mailed.format(log=log), "")
        assert Path(log).read_text() == "told\nprogress\n"


def test_each_timer_has_the_words_of_its_job() -> None:
    assert {file.stem.partition("@")[2] for file in TIMERS} == set(jobs())


def test_a_job_that_still_runs_is_not_started_again_and_may_take_long() -> None:
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(SYSTEMD / "tributary@.service")
    service = read["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("oneshot", "infinity")
    assert service["ExecStart"] == f"{PROGRAM} $TRIBUTARY_JOB"
    assert int(service["TimeoutStopSec"]) > 60, "Spark ends within 40 s"
    assert service["User"] != "root"


@pytest.mark.skipif(ANALYZE is None, reason="this machine has no systemd-analyze")
@pytest.mark.parametrize("file", TIMERS, ids=lambda file: file.name)
def test_systemd_takes_the_times(file: Path) -> None:
    (times,) = re.findall(r"^OnCalendar=(.+)$", file.read_text(), re.MULTILINE)
    done = subprocess.run([str(ANALYZE), "calendar", times], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
