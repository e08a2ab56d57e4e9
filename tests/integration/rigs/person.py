"""A person at the command line who does what errors say: commands are taken out of their texts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cdc.lake.pointer import local_folder
from cdc.runtime import spark as spark_module
from cdc.store.table_state import State
from operate.cli import app
from tests.integration.rigs import faults
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.shop import Shop

FEW = 5
_COMMAND = re.compile(r"`tributary ([^`]+)`")


@dataclass(frozen=True)
class Answer:
    """What one command printed.

    Args:
        code: Its exit code.
        documents: What it printed for programs.
    """

    words: tuple[str, ...]
    code: int
    documents: list[Any]

    @property
    def remedies(self) -> list[str]:
        """What it says to do, in the order in which it says it."""
        return list(dict.fromkeys(_found(self.documents, "remedy")))

    @property
    def remedy(self) -> str:
        """The one thing that it says to do."""
        (only,) = self.remedies
        return only

    @property
    def messages(self) -> str:
        return "\n".join(_found(self.documents, "message"))


def _found(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _found(one, key)
    elif isinstance(value, dict):
        if isinstance(value.get(key), str) and value[key]:
            yield value[key]
        for one in value.values():
            yield from _found(one, key)


def commands(remedy: str) -> list[list[str]]:
    """The commands that a remedy names, each as its words."""
    return [shlex.split(command) for command in _COMMAND.findall(remedy)]


@dataclass
class Person:
    """Runs the command line in this process, with the test's Spark session.

    Args:
        shop: Whose database, state and lake it works on.
    """

    shop: Shop

    def configure(self, **changes: Any) -> None:
        """Write the configuration file anew."""
        document = self.shop.database.document(self.shop.folder)
        written = {**document, "tables": self.shop.tables, **changes}
        self.file.write_text(yaml.safe_dump(written))
        self.shop.reconfigure(**changes)

    @property
    def file(self) -> Path:
        return self.shop.folder / "tributary.yaml"

    def run(self, *words: str) -> Answer:
        """Run a command, whatever comes of it."""
        done = CliRunner().invoke(app, [*words, "--output", "json", "--config", str(self.file)])
        documents = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "{["]
        assert documents or done.exit_code == 0, (words, done.output)
        return Answer(words, done.exit_code, documents)

    def refused(self, *words: str) -> Answer:
        """Run a command that is refused, and says what to do."""
        answer = self.run(*words)
        assert answer.code != 0, (words, answer.documents)
        assert answer.remedies, (words, answer.documents)
        return answer

    def done(self, *words: str) -> Answer:
        """Run a command that does what it is asked."""
        answer = self.run(*words)
        assert answer.code == 0, (words, answer.documents)
        return answer

    def led_to(self, remedy: str, *choice: str) -> list[list[str]]:
        """The commands that a remedy names, in their order.

        One that only shows what a table needs leads to what that is; one that lists all tables
        is to be read only.

        Args:
            remedy: The text.
            choice: Of commands to choose from, the names of those to take; by default all.
        """
        found: list[list[str]] = []
        for words in commands(remedy):
            if choice and words[0] not in choice:
                continue
            if words == ["status"]:
                continue
            if words[0] == "status":
                needs = self.run(*words).remedies
                assert needs, f"{remedy!r} names {words}, which says nothing"
                found += self.led_to(needs[0])
            else:
                found.append(words)
        assert found, f"no command to run: {remedy}"
        return found

    def follow(self, remedy: str, *choice: str) -> None:
        """Run the commands that a remedy names; none of them is refused."""
        for words in self.led_to(remedy, *choice):
            answer = self.run(*words)
            # A run that marks a table says so by its code.
            allowed = (0, 3, 4) if words[0] == "run" else (0,)
            assert answer.code in allowed, (
                f"{remedy!r} names {words}, which is refused: {answer.documents}"
            )

    def state(self, name: str) -> State:
        return self.shop.record(name).state


def created(shop: Shop, *names: str) -> list[str]:
    """Tables of a few rows, as people name them."""
    for name in names:
        shop.create(name, FEW)
    return [shop.database.label(name) for name in names]


def produce(shop: Shop, name: str, value: bytes) -> None:
    """A message of someone else in a table's topic, behind all that is committed."""
    shop.settle(name)
    faults.produce(shop.services.config, shop.record(name).topic, value)


def folder(shop: Shop, name: str) -> Path:
    """Where a table's generations are."""
    found = local_folder(shop.record(name).base_path)
    assert found is not None
    return found


@pytest.fixture
def early(database: OwnDatabase, tmp_path: Path) -> Iterator[Person]:
    """Who works on tables that are not copied yet, which needs no Spark."""
    person = Person(Shop(database, None, tmp_path))
    person.configure()
    yield person
    person.shop.services.close()


@pytest.fixture
def person(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Person:
    """Who works on the shop; the session of Spark outlives the commands."""
    monkeypatch.setattr(spark_module, "stop", lambda: None)
    person = Person(shop)
    person.configure()
    return person
