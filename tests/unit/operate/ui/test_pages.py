"""The pages of ``ui`` from a real state store, as an HTTP client without a browser reads them."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from cdc.errors import ConfigError, StateError
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import State
from operate.cli import app
from operate.context import Services
from operate.ui.app import Ui
from operate.ui.copies import copies
from operate.ui.looks import Look, Looks, take_look
from operate.ui.rendering import ASSETS, Pages, size
from operate.ui.report import write_report
from operate.ui.serving import Place, serving
from operate.ui.tables import PER_PAGE, SORTS, Wanted, listing
from schemas.table import TableId
from tests.records import table_record
from tests.ui_fleet import INVOICES, ORDERS, ROW, VARIABLE, Reader, config, fill
from tests.viewer import Viewer

STATIC = Path(__file__).parents[4] / "operate" / "ui" / "static"
TABLES = 70
PATHS = ("/", "/tables", f"/table?name={ORDERS}", "/copies", "/sources", "/history", "/checks")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "secret")
        opened = Services(config(tmp_path_factory.mktemp("ui")), NullProgress())
    fill(opened, TABLES)
    yield opened
    opened.close()


@pytest.fixture
def looks(fleet: Services, monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr("operate.ui.looks.FactReader", lambda services, _bound: Reader(services))
    return Looks(fleet, cache_s=60.0)


@pytest.fixture
def viewer(fleet: Services, looks: Looks) -> Viewer:
    return Viewer(Ui(fleet, looks).app())


@pytest.fixture
def look(fleet: Services) -> Look:
    return take_look(fleet, Reader(fleet))


@pytest.mark.parametrize("path", [*PATHS, "/periods"])
def test_a_page_has_no_inline_script_and_no_row(viewer: Viewer, path: str) -> None:
    answer = viewer.get(path)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert ROW not in answer.text
    assert re.findall(r"<script(?![^>]* src=)|\son[a-z]+=|\sstyle=", answer.text) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == []


@pytest.mark.parametrize("path", ["/table?name=nobody", "/nothing", "/static/vendored.json"])
def test_what_is_not_there_is_404(viewer: Viewer, path: str) -> None:
    assert viewer.get(path).status_code == 404


def test_a_name_in_a_query_is_escaped(viewer: Viewer) -> None:
    answer = viewer.get("/tables", params={"q": '"><script>alert(1)</script>'})
    assert "<script>alert" not in answer.text
    assert "No table is like this." in answer.text


def test_without_a_state_store_the_page_says_what_to_do(
    fleet: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Reader):
        def read(self):
            found = super().read()
            return type(found)({("state_store", ""): False}, found.read_at, 0.1)

    monkeypatch.setattr("operate.ui.looks.FactReader", lambda services, _bound: Away(services))
    answer = Viewer(Ui(fleet, Looks(fleet)).app()).get("/")
    assert answer.status_code == 503
    assert "tributary check" in answer.text
    monkeypatch.setattr("operate.ui.report.FactReader", lambda services, _bound: Away(services))
    with pytest.raises(StateError, match="the report was not written"):
        write_report(fleet, Path("nowhere"))


def test_viewers_share_a_look_and_do_not_wait_for_the_next(looks: Looks) -> None:
    first = looks.newest()
    assert first is not None
    assert looks.newest() is first
    looks._cache_s = 0.0
    assert looks.newest() is first, "the next one is taken meanwhile"


def test_the_statements_of_a_page_do_not_grow_with_the_tables(
    fleet: Services, viewer: Viewer
) -> None:
    """The look at all tables is kept, so a page queries only what it alone shows."""
    viewer.get("/")
    asked: list[str] = []
    sa.event.listen(
        fleet.store._engine,
        "before_cursor_execute",
        lambda _connection, _cursor, text, *_: asked.extend([text] * text.startswith("SELECT")),
    )
    for path, most in (("/", 0), ("/tables", 0), (f"/table?name={ORDERS}", 8), ("/history", 4)):
        asked.clear()
        viewer.get(path)
        assert len(asked) <= most, path


def test_the_list_is_filtered_sorted_and_cut(look: Look) -> None:
    assert look.facts.status is not None
    tables = look.facts.status.tables
    first = listing(tables, Wanted())
    assert (first.total, first.found, first.pages, len(first.rows)) == (TABLES, TABLES, 2, PER_PAGE)
    assert [row.state for row in first.rows[:2]] == ["failed", "needs_bootstrap"]
    last = listing(tables, Wanted(page=9))
    assert (last.wanted.page, last.first, len(last.rows)) == (2, PER_PAGE + 1, TABLES - PER_PAGE)
    drift = listing(tables, Wanted(state="drift"))
    assert [row.name for row in drift.rows] == ["shop:public.events"]
    assert listing(tables, Wanted(text="PUBLIC ord")).found == 1
    for sort in SORTS:
        names = [row.name for row in listing(tables, Wanted(sort=sort), all_rows=True).rows]
        assert len(names) == TABLES
    oldest = listing(tables, Wanted(sort="freshness"), all_rows=True).rows
    ages = [row.freshness_s for row in oldest if row.freshness_s is not None]
    assert ages == sorted(ages, reverse=True)


@pytest.mark.parametrize(
    "query", [{"page": "-1"}, {"page": "x"}, {"page": "9" * 50}, {"sort": "a"}, {"state": "b"}]
)
def test_a_query_that_means_nothing_is_left_out(query: dict[str, str]) -> None:
    assert Wanted.of(query) == Wanted()


def test_a_link_of_the_list_keeps_what_was_asked() -> None:
    asked = Wanted("a&b", "failed", "behind", 3)
    assert asked.query(page=4) == "q=a%26b&state=failed&sort=behind&page=4"
    assert asked.query(sort="state") == "q=a%26b&state=failed"


def test_a_copy_is_shown_by_chunk(look: Look) -> None:
    (copy,) = copies(look)
    assert (copy.name, copy.working) == (str(INVOICES), True)
    states = [block.state for block in copy.blocks]
    assert states == ["committed"] * 18 + ["writing"] * 8 + ["waiting"] * 14
    assert (copy.rows_per_s, copy.seconds_left) == (40_000.0, 24.0)


def test_a_copy_without_a_process_has_no_rate(fleet: Services, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "secret")
        services = Services(config(tmp_path), NullProgress())
    try:
        fill(services, 5)
        with services.store.transaction() as connection:
            connection.execute(sa.text("delete from tributary_lease"))
        (copy,) = copies(take_look(services, Reader(services)))
        assert (copy.working, copy.rows_per_s, copy.seconds_left) == (False, None, None)
        assert copy.committed == 18, "it goes on there"
        next_one = table_record(TableId("shop", "public", "next"), State.REGISTERED)
        services.store.put(next_one)
        assert len(copies(take_look(services, Reader(services)))) == 1, "nothing has begun"
    finally:
        services.close()


def test_what_is_vendored_is_what_was_released() -> None:
    listed = json.loads((STATIC / "vendored.json").read_text())
    digests = {name: digest for one in listed for name, digest in one["files"].items()}
    for name, digest in digests.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert {one["licence"] for one in listed} == {"0BSD", "MIT"}
    ours = {"ui.css", "ui.js", "vendored.json"}
    assert {file.name for file in STATIC.iterdir()} == {*digests, *ours}
    assert set(ASSETS) <= {*digests, *ours}


def test_a_file_of_the_page_is_kept_by_browsers_until_it_changes(viewer: Viewer) -> None:
    page = viewer.get("/").text
    for name in ASSETS:
        answer = viewer.get(f"/static/{name}")
        assert f"/static/{name}?v={Pages().asset_version}" in page
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"].startswith(ASSETS[name])


def test_a_missing_package_is_an_error_that_names_the_extra(
    fleet: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("uvicorn", "starlette.applications"):
        monkeypatch.delitem(sys.modules, "operate.ui.app", raising=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ConfigError) as caught, serving(fleet.config, Place("127.0.0.1", 0)):
                pass
        assert "tributary-cdc[ui]" in str(caught.value.remedy)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match="jinja2"):
        Pages()


def test_a_port_in_use_and_a_folder_that_is_not_there_are_named(
    fleet: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(fleet.config, Place("127.0.0.1", 0)) as port,
        pytest.raises(ConfigError, match="cannot be served"),
        serving(fleet.config, Place("127.0.0.1", port)),
    ):
        pass
    monkeypatch.setattr("operate.ui.report.FactReader", lambda services, _bound: Reader(services))
    with pytest.raises(ConfigError, match="cannot be written"):
        write_report(fleet, tmp_path / "none" / "report.html")
    written = write_report(fleet, tmp_path / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (written.tables, written.troubles) == (TABLES, 5)


def test_a_report_needs_a_file() -> None:
    assert CliRunner().invoke(app, ["report"]).exit_code == 2


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert size(count) == text
