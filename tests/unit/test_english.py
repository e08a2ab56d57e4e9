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
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "airflow" / "README.md",
    ROOT / "examples" / "shop" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
BANNED = {
    r"\b(?:tells?|told|telling)\b": "report, distinguish or announce",
    r"\banew\b": "again, or recreate",
    r"\botherwise than\b": "differently from",
    r"(?:^|(?<=[.:;] ))Of (?:a|an|the|what|each|all|every)\b": "begin with the subject",
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
        for match in re.finditer(pattern, text, re.MULTILINE | re.IGNORECASE):
            if pattern.startswith("(?:^") and not match[0].startswith("Of"):
                continue
            around = text[max(0, match.start() - 40) : match.end() + 40].replace("\n", " ")
            found.append(f"...{around}...: {instead}")
    return found


def texts(file: Path) -> Iterator[str]:
    """The docstrings, the comments, and the strings with spaces in the code of a file."""
    code = file.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield NAMES.sub("", token.string.lstrip("# "))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield NAMES.sub("", node.value)


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
    for text in ("A row. Of a table, the first.", "Of what was read, nothing."):
        assert banned(text)
    assert not banned("One of a kind. The end of the log. Of course.")
    assert [len(one) for one in paragraphs("a\nb\n\n- c\n- d\n  e\n| f |\n```\ng\n```\nh")] == [
        *(2, 1, 2, 1),
    ]
