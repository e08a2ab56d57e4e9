"""A simulated person at the command line, who runs the commands that remedies of errors name."""

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
        words: The arguments of the command.
        code: The exit code.
        documents: The JSON documents that the command printed.
    """

    words: tuple[str, ...]
    code: int
    documents: list[Any]

    @property
    def remedies(self) -> list[str]:
        """The remedies in the documents, in their order, without repetitions."""
        return list(dict.fromkeys(_found(self.documents, "remedy")))

    @property
    def remedy(self) -> str:
        """The remedy, if the documents name exactly one."""
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
    """The commands that a remedy names, each as a list of words."""
    return [shlex.split(command) for command in _COMMAND.findall(remedy)]


@dataclass
class Person:
    """Runs the command line in this process, with the test's Spark session.

    Args:
        shop: The shop with the database, the state store and the lake.
    """

    shop: Shop

    def configure(self, **changes: Any) -> None:
        """Write the configuration file again, with these changes."""
        document = self.shop.database.document(self.shop.folder)
        written = {**document, "tables": self.shop.tables, **changes}
        self.file.write_text(yaml.safe_dump(written))
        self.shop.reconfigure(**changes)

    @property
    def file(self) -> Path:
        return self.shop.folder / "tributary.yaml"

    def run(self, *words: str) -> Answer:
        """Run a command, with any exit code."""
        done = CliRunner().invoke(app, [*words, "--output", "json", "--config", str(self.file)])
        documents = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "{["]
        assert documents or done.exit_code == 0, (words, done.output)
        return Answer(words, done.exit_code, documents)

    def refused(self, *words: str) -> Answer:
        """Run a command; asserts that it fails and names a remedy."""
        answer = self.run(*words)
        assert answer.code != 0, (words, answer.documents)
        assert answer.remedies, (words, answer.documents)
        return answer

    def done(self, *words: str) -> Answer:
        """Run a command; asserts that it succeeds."""
        answer = self.run(*words)
        assert answer.code == 0, (words, answer.documents)
        return answer

    def led_to(self, remedy: str, *choice: str) -> list[list[str]]:
        """The commands that a person runs after reading a remedy, in their order.

        ``status`` with a table is run at once, and replaced by the commands of the remedy that it
        prints. ``status`` without a table is left out.

        Args:
            remedy: The text of the remedy.
            choice: The names of the commands to take; by default all.
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
        """Run the commands that a remedy names; asserts that none of them is refused."""
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
    """Create tables with a few rows; returns their names for the command line."""
    for name in names:
        shop.create(name, FEW)
    return [shop.database.label(name) for name in names]


def produce(shop: Shop, name: str, value: bytes) -> None:
    """Append a message that no connector wrote to a table's topic, after all committed changes."""
    shop.settle(name)
    faults.produce(shop.services.config, shop.record(name).topic, value)


def folder(shop: Shop, name: str) -> Path:
    """The folder with the generations of a table."""
    found = local_folder(shop.record(name).base_path)
    assert found is not None
    return found


@pytest.fixture
def early(database: OwnDatabase, tmp_path: Path) -> Iterator[Person]:
    """A person for tables that are not copied yet; no command of this person needs Spark."""
    person = Person(Shop(database, None, tmp_path))
    person.configure()
    yield person
    person.shop.services.close()


@pytest.fixture
def person(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Person:
    """A person who works on the shop; commands do not stop the Spark session."""
    monkeypatch.setattr(spark_module, "stop", lambda: None)
    person = Person(shop)
    person.configure()
    return person
