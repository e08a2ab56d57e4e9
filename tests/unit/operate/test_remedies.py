"""Commands and settings that remedies name exist; a test does each remedy, or a reason is given.

The remedies are read from the whole source code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from cdc.config import Config
from operate.cli import app
from tests.unit.operate.remedy_table import EXECUTED
from tests.unit.operate.remedy_texts import HOLE, ROOT, modules, remedies
from tests.unit.operate.untried_remedies import LEFT, Why

COMMANDS = typer.main.get_command(app)


def texts() -> Iterator[tuple[str, str]]:
    """Every string in the source code, with its place; no docstrings. `HOLE` replaces values."""
    for module in modules():
        inside = {id(part) for node in ast.walk(module.tree) for part in _parts(node)}
        for node in ast.walk(module.tree):
            if id(node) not in inside and (text := _text(node)) is not None:
                yield f"{module.path}:{getattr(node, 'lineno', 0)}", text


def _parts(node: ast.AST) -> list[ast.AST]:
    """The nodes that `texts` must skip: the parts of a string, and docstrings."""
    if isinstance(node, ast.JoinedStr):
        return list(node.values)
    if isinstance(node, ast.Expr):
        return [node.value]
    return []


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or HOLE for part in node.values)
    return None


def commands() -> list[tuple[str, str]]:
    return [
        (place, command)
        for place, text in texts()
        for command in re.findall(r"`(tributary [^`]+)`", text)
    ]


@pytest.mark.parametrize(("place", "command"), commands())
def test_each_command_that_a_remedy_names_is_taken_by_the_command_line(
    place: str, command: str
) -> None:
    words = command.replace("<", "").replace(">", "").split()[1:]
    group: Any = COMMANDS
    while isinstance(group, TyperGroup):
        name = words.pop(0)
        assert name in group.commands, f"{place}: there is no command {command!r}"
        group = group.commands[name]
        if not words and isinstance(group, TyperGroup):
            return
    known = {"--help", *(option for one in group.params for option in one.opts)}
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    assert options <= known, f"{place}: {command!r} has no {options - known}"


def settings() -> set[str]:
    """Every path of the configuration, with `*` for names that people choose."""
    return set(_paths(Config, ""))


def _paths(model: Any, prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        yield path
        for inner in _models(field.annotation):
            yield from _paths(inner, f"{path}.")
            yield from _paths(inner, f"{path}.*.")


def _models(annotation: Any) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


SECTIONS = ("columns", "connect", "credentials", "kafka", "lake", "resync", "spark", "state")
DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+(?![\w(/]|\.[a-z])")
OF_SPARK = re.compile(
    r"spark\.(archives|ui|sql|executor|driver|jars|kryo|hadoop|app|default|local|speculation|kerberos)"
)


def named_settings() -> list[tuple[str, str]]:
    return [
        (place, name)
        for place, text in texts()
        if " " in text  # a sentence, and no key of another program
        for name in DOTTED.findall(text)
        if not OF_SPARK.match(name)
    ]


def test_each_setting_that_a_remedy_names_exists() -> None:
    known = settings()
    ends = {path.split(".", cut)[-1] for path in known for cut in range(path.count(".") + 1)}
    found = named_settings()
    assert len(found) > 40
    assert {(place, name) for place, name in found if name not in known | ends} == set()


def test_the_walk_reads_what_is_there() -> None:
    seen = {command.split()[1] for _, command in commands()}
    assert {"bootstrap", "resync", "retry", "resume", "onboard", "check", "status"} <= seen


BEGINNINGS = {begin: by for by, begins in [*EXECUTED.items(), *LEFT.items()] for begin in begins}
CHANGING = re.compile(
    r"`tributary (onboard|bootstrap|resync|retry|resume|run|offboard|verify|quarantine replay)\b"
)


def entry(remedy: str) -> str | None:
    """The longest entry of the remedy tables with which a remedy's text begins, or None."""
    fits = [begin for begin in BEGINNINGS if remedy.startswith(begin)]
    return max(fits, key=len) if fits else None


def test_each_remedy_is_done_by_a_test_or_says_why_not() -> None:
    found = remedies()
    assert len(found) > 350
    assert {place: text for text, place in found.items() if entry(text) is None} == {}


def test_no_entry_of_the_table_is_left_over() -> None:
    assert set(BEGINNINGS) - {entry(text) for text in remedies()} == set()
    listed = [begin for begins in [*EXECUTED.values(), *LEFT.values()] for begin in begins]
    assert len(listed) == len(BEGINNINGS), "one beginning, one entry"


@pytest.mark.parametrize("test", EXECUTED)
def test_each_test_that_the_table_names_exists(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


def test_a_remedy_that_changes_something_is_never_left_to_a_general_reason() -> None:
    """The entry `Check ...` may cover many remedies, but none that names a command."""
    general = {
        begin
        for text in remedies()
        if CHANGING.search(text) and (begin := entry(text)) is not None
        if BEGINNINGS[begin] in set(Why) - {Why.UNTRIED} and not CHANGING.search(begin)
    }
    assert general == set()


def test_what_no_test_does_becomes_less() -> None:
    assert len(LEFT[Why.UNTRIED]) <= 25
