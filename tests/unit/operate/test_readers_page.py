"""The page of the docs on query engines has each type of the lake."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.rigs.reader_page import Results, agrees, read

DOCS = Path(__file__).parents[3] / "docs"


def test_each_type_that_a_source_has_in_the_lake_is_on_the_page() -> None:
    shown = read(DOCS / "readers_engines.md")["Types of the lake"]
    for page in ("types.md", "types_mysql.md"):
        promised = (DOCS / page).read_text("utf-8").split("## ")[0]
        head, *rows = [line.split("|") for line in promised.splitlines() if line.startswith("| ")]
        place = [title.strip() for title in head].index("in the lake")
        kinds = {re.sub(r"\(\d+,\d+\)", "(p,s)", row[place].strip()) for row in rows}
        assert kinds
        assert kinds <= {*shown}, page


def test_a_page_that_is_written_is_read_as_it_was_seen(tmp_path: Path) -> None:
    results = Results()
    results.add("Types", "decimal(p,s)", "One 1.0", "equal")
    results.add("Types", "string", "One 1.0", "varchar: equal")
    results.add("Types", "string", "One 1.0", "varchar: `a|b` for `c`")
    results.add("Partitions", "by text, `#?&` `x'y`", "One 1.0", "fails, X: no '\\N'")
    page = tmp_path / "page.md"
    page.write_text(results.render(), "utf-8")
    assert read(page) == results.tables()
    assert results.tables()["Types"]["string"] == {"One 1.0": "varchar: `a\\|b` for `c`"}
    agrees(page, results)
