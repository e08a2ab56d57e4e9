"""A page of the docs that lists what query engines show: written from test results or compared."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WRITE_VARIABLE = "TRIBUTARY_WRITE_PAGES"
"""Environment variable; if it is set, the test writes the page before it compares the page."""
EQUAL = "equal"
_PARTS = re.compile(
    r"^## (?P<title>.*)\n\n\|(?P<head>.*)\|\n\|[-|]*\|\n(?P<rows>(?:\|.*\|\n)+)", re.M
)
_INTRODUCTION = """\
# What query engines show

Written by tests/integration/test_readers.py, which compares this page with what it sees. It starts
the engines, gives tables of PostgreSQL and MariaDB a name in a Hive Metastore
(`catalog: {metastore: ...}`), reads them by name, and compares each cell with the source's. The
lake was on a local disk. Hive and Presto read the tables of PostgreSQL only. The test runs in
`make test-all`. docs/deploy.md has the settings of the engines.

"equal" means that each cell is the source's, as docs/types.md has it. A name before it is that of
the engine's own type, if it has another one. Columns of types that an engine does not show equal
are left out of its comparisons below the types.

With a catalog, `tributary check` names the partition columns of a table for which Trino shows
encoded texts or fails.
"""


@dataclass
class Results:
    """The results of each engine: by part of the page, by row of that part's table, by engine.

    A row may collect the results of several columns, tables or catalogs. If some of these results
    are not equal to the source, the row shows only them.
    """

    parts: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)

    def add(self, part: str, row: str, engine: str, result: str) -> None:
        """Add a result of one column or table."""
        cells = self.parts.setdefault(part, {}).setdefault(row, {}).setdefault(engine, [])
        if result not in cells:
            cells.append(result)

    def tables(self) -> dict[str, dict[str, dict[str, str]]]:
        """The texts of the page's cells, by part, row and engine."""
        return {
            part: {
                row: {engine: _cell(found) for engine, found in cells.items()}
                for row, cells in rows.items()
            }
            for part, rows in self.parts.items()
        }

    def render(self) -> str:
        """The text of the page, in Markdown."""
        text = _INTRODUCTION
        for part, rows in self.tables().items():
            engines = list(dict.fromkeys(engine for cells in rows.values() for engine in cells))
            lines = [f"| | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}"]
            lines += [
                f"| {row} | {' | '.join(cells.get(engine, '') for engine in engines)} |"
                for row, cells in rows.items()
            ]
            text += f"\n## {part}\n\n" + "\n".join(lines) + "\n"
        return text


def read(page: Path) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of a page, in the form of ``Results.tables``."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in _PARTS.finditer(page.read_text("utf-8")):
        _, *engines = _cells(part["head"])
        rows = [_cells(line.strip("|")) for line in part["rows"].splitlines()]
        found[part["title"]] = {row: dict(zip(engines, cells, strict=True)) for row, *cells in rows}
    return found


def compare(page: Path, results: Results) -> None:
    """Assert that the page is exactly the results of a complete test; or write the page first."""
    if os.environ.get(WRITE_VARIABLE):
        page.write_text(results.render(), "utf-8")
    assert page.read_text("utf-8") == results.render(), f"{WRITE_VARIABLE}=1 writes {page.name}"


def agrees(page: Path, results: Results) -> None:
    """Assert that the page has each of these results; the page may have others, too."""
    shown = read(page)
    seen = {
        (part, row, engine): cell
        for part, rows in results.tables().items()
        for row, cells in rows.items()
        for engine, cell in cells.items()
    }
    assert seen
    assert {key: _at(shown, *key) for key in seen} == seen


def _at(shown: Mapping[str, Mapping[str, Mapping[str, str]]], *key: str) -> str | None:
    part, row, engine = key
    return shown.get(part, {}).get(row, {}).get(engine)


def _cell(results: list[str]) -> str:
    """The text of a cell: the results that are not equal, or all results if all are equal."""
    unequal = [result for result in results if not result.endswith(EQUAL)]
    return "; ".join(text.replace("|", "\\|").replace("\n", " ") for text in unequal or results)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
