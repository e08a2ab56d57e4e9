"""Pages, docstrings and texts use the words of the field, and say one thing at a time."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "cdc", "bootstrap", "tributary_reader", "operate", "stack")
MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
AIRFLOW = sorted((ROOT / "airflow" / "src").rglob("*.py"))
TESTS = [
    file
    for folder in ("tests", "benchmarks", "examples", "airflow/tests")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
SETTINGS = [
    *(
        ROOT / name
        for name in ("docker-compose.yml", "Makefile", "deploy/Dockerfile", "pyproject.toml")
    ),
    ROOT / "operate" / "starting_config.yaml",
    *(
        file
        for folder in ("deploy", "examples")
        for ending in ("yaml", "yml")
        for file in sorted((ROOT / folder).rglob(f"*.{ending}"))
    ),
]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "airflow" / "README.md",
    ROOT / "examples" / "shop" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
BANNED = {
    r"(?i)\b(?:tells?|told|telling)\b": "report, distinguish or announce",
    r"(?i)\banew\b": "again, or recreate",
    r"(?i)\botherwise than\b": "differently from",
    r"(?i)\bst(?:ands?|anding|ood)\b(?!-)(?!\s+for\b)": "be, stop, or do not move",
    r"(?:^[-*>|\s]*|[.:;!?|] )Of (?!course\b)": "begin with the subject",
}
LONGEST = 6
"""The most lines that a paragraph may have."""
NAMES = re.compile(r"```.*?```|`[^`]*`|\btest_\w+|\]\([^)]*\)", re.DOTALL)
"""Matches code, names of tests and targets of links, which are not English text."""


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def banned(text: str) -> list[str]:
    """The banned words of a text, each with its place and what to write instead."""
    found = []
    for pattern, instead in BANNED.items():
        for match in re.finditer(pattern, text, re.MULTILINE):
            around = text[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
            found.append(f"...{around}...: {instead}")
    return found


def texts(file: Path) -> Iterator[str]:
    """The docstrings, the comments, and the strings with spaces in the code of a file."""
    code = file.read_text("utf-8")
    yield from comments(code)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield NAMES.sub("", node.value)


def comments(code: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield NAMES.sub("", token.string.lstrip("# "))


def docstrings(code: str) -> Iterator[str]:
    """The docstrings of a module, also those of constants and fields."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield NAMES.sub("", str(node.value.value))


def paragraphs(page: str) -> Iterator[list[str]]:
    """The paragraphs and list items of a page, by their lines; no tables, headings or code."""
    lines: list[str] = []
    for line in [*re.sub(r"```.*?```", "\n", page, flags=re.DOTALL).splitlines(), ""]:
        starts = re.match(r"\s*(?:[-*] |\d+\. )", line)
        if not line.strip() or starts or line.startswith(("|", "#")):
            if lines:
                yield lines
            lines = []
        if line.strip() and not line.startswith(("|", "#")):
            lines.append(line)


@pytest.mark.parametrize("file", [*MODULES, *AIRFLOW], ids=name)
def test_the_texts_of_a_module_are_plain(file: Path) -> None:
    assert [word for text in texts(file) for word in banned(text)] == []


@pytest.mark.parametrize("file", TESTS, ids=name)
def test_comments_and_docstrings_of_tests_are_plain(file: Path) -> None:
    code = file.read_text("utf-8")
    plain = (*comments(code), *docstrings(code))
    assert [word for text in plain for word in banned(text)] == []


@pytest.mark.parametrize("file", SETTINGS, ids=name)
def test_a_file_of_settings_is_plain(file: Path) -> None:
    assert banned(NAMES.sub("", file.read_text("utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_plain(page: Path) -> None:
    assert banned(NAMES.sub("", page.read_text("utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_paragraph_is_short(page: Path) -> None:
    found = paragraphs(page.read_text("utf-8"))
    assert [lines[0] for lines in found if len(lines) > LONGEST] == [], "split it"


def test_the_rules_find_what_they_ban() -> None:
    for text in ("It tells the rows apart.", "He is told.", "made anew", "otherwise than before"):
        assert len(banned(text)) == 1, text
    for text in ("The lake stands still.", "It stood between them.", "a guard, standing there"):
        assert len(banned(text)) == 1, text
    for text in ("A row. Of a table, the first.", "Of what was read, nothing.", "- Of ten, one."):
        assert len(banned(text)) == 1, text
    for text in ("# of it:\n    Of several tiers, the first.", "| it | Of 3 rows, none. |"):
        assert len(banned(text)) == 1, text
    for text in ("One of a kind. The end of the log. Of course.", "NULL stands\nfor an unknown"):
        assert not banned(text), text
    assert not banned("the stand-ins of a connector, on a standby or standalone")
    assert [len(one) for one in paragraphs("a\nb\n\n- c\n- d\n  e\n| f |\n```\ng\n```\nh")] == [
        *(2, 1, 2, 1),
    ]
