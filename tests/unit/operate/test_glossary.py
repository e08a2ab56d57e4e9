"""The glossary has one sentence for each term, and the pages use its terms in this meaning."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"
MOST = 30
"""The most terms that a reader has to learn."""
OTHER_MEANINGS = {
    r"\bnames? (?:in|of) (?:a|the) catalog\b": "metastore",
    r"\bwith a catalog\b": "metastore",
    r"\bcheck (?:under|inside|of) (?:a|the) commit\b": "guard",
    r"\ba check of (?:a|the) (?:capture|server|source)\b": "finding",
}
"""Patterns of terms in another meaning than the glossary's, each with the word to use instead."""
WRITTEN_BY_A_TEST = {"readers_engines.md"}
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(file for file in (ROOT / "docs").glob("*.md") if file.name not in WRITTEN_BY_A_TEST),
]


def glossary() -> list[tuple[str, str, str]]:
    """The rows of the glossary: the term, its meaning and its name in the code."""
    lines = [line for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [(row[0], row[1], row[2].strip("`")) for row in cells]


def sentences(meaning: str) -> int:
    """The number of sentences in a meaning."""
    return len(re.findall(r"[.!?](?=\s|$)", meaning))


def other_meanings(page: str) -> list[str]:
    return [
        f"{found[0]}: {instead}"
        for pattern, instead in OTHER_MEANINGS.items()
        for found in re.finditer(pattern, re.sub(r"\s+", " ", page), re.IGNORECASE)
    ]


def find_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_glossary_is_short_and_in_order() -> None:
    terms = [term.lower() for term, _, _ in glossary()]
    assert 20 < len(terms) <= MOST
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("term", "meaning", "place"), glossary())
def test_a_term_has_one_sentence(term: str, meaning: str, place: str) -> None:
    assert meaning.endswith("."), term
    assert sentences(meaning) == 1, term


@pytest.mark.parametrize(("term", "meaning", "place"), glossary())
def test_every_term_has_the_name_in_the_code_that_the_glossary_gives(
    term: str, meaning: str, place: str
) -> None:
    parts = place.split(".")
    loaded = next(n for n in range(len(parts), 0, -1) if find_module(".".join(parts[:n])))
    found: object = importlib.import_module(".".join(parts[:loaded]))
    for name in parts[loaded:]:
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[name] if name in fields else getattr(found, name)
    assert found is not None, term


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_a_term_in_its_one_meaning(page: Path) -> None:
    assert other_meanings(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", page.read_text("utf-8")):
        file = (page.parent / target).resolve() if target else page
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert anchor in anchors, (target, anchor)


def test_the_rules_find_what_they_are_for() -> None:
    assert sentences("A row. It is written.") == 2
    assert sentences("The file `_current.json` of a table.") == 1
    assert other_meanings("The name in the\ncatalog.") == ["name in the catalog: metastore"]
    assert not other_meanings("The catalog of the source has the name of a column.")
