"""The page of ``ui`` in a real browser: appearance, keyboard, speed, and what it must not show.

The state store is real and has 3,000 tables. The answers of Kafka, Connect and the source are
faked, since a test cannot have so many topics. `test_commands.py` tests the page with real servers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from cdc.runtime.progress import NullProgress
from operate.context import Services
from operate.ui.report import write_report
from operate.ui.serving import Place, serving
from stack.browser_software import headless_browser
from tests.ui_fleet import ORDERS, ROW, SECRET, VARIABLE, Reader, config, fill

ROOT = Path(__file__).parents[2]
TABLES = 3000
FIRST_PAINT_MS = 1000
# The page's policy forbids eval, by which playwright itself would wait.
FIRST_PAINT = """() => new Promise(found => new PerformanceObserver(list =>
    list.getEntriesByName("first-contentful-paint").forEach(one => found(one.startTime))
).observe({type: "paint", buffered: true}))"""
SIZES = {"phone": (390, 844), "desk": (1440, 900)}
LOOKS = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
PATHS = (
    *("/", "/tables", f"/table?name={ORDERS}", "/table?name=shop:public.refunds", "/copies"),
    *("/sources", "/history?since=24h&kind=schema", "/checks", "/periods", "/table?name=nobody"),
)
# The switches keep the browser from asking any other machine.
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, SECRET)
        opened = Services(config(tmp_path_factory.mktemp("ui")), NullProgress())
        password = opened.config.source("shop").credentials.admin.password
        assert password is not None
        password.resolve()  # as whoever connects to the source does
        fill(opened, TABLES)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(fleet: Services) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("operate.ui.looks.FactReader", lambda services, _bound: Reader(services))
        with serving(fleet.config, Place("127.0.0.1", 0)) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = headless_browser(report=print)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=str(found.program),
            env={**os.environ, **found.environment},
            args=SWITCHES,
        )
        yield started
        started.close()


@contextmanager
def viewing(browser: Browser, size: str, scheme: str, **more: bool) -> Iterator[Page]:
    """A page in the browser; asserts that it has no errors and asks no other server."""
    width, height = SIZES[size]
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **more
    )
    page, wrong, asked = context.new_page(), list[str](), set[str]()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.add(request.url.split("/")[2]))
    try:
        yield page
        assert [text for text in wrong if "404" not in text] == []
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+|", host) for host in asked), asked
    finally:
        context.close()


def complaints(page: Page) -> list[str]:
    """The violations of WCAG 2, levels A and AA, that the tool axe finds, contrast included."""
    wanted = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = Axe().run(page, options=wanted).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"][:3]]


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_every_page_fits_reads_well_and_shows_no_canary(
    browser: Browser, address: str, size: str, scheme: str
) -> None:
    with viewing(browser, size, scheme) as page:
        for path in PATHS:
            page.goto(address + path)
            width = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
            assert width <= 0, f"{path} is wider than the screen"
            assert page.locator("h1").count() == 1
            if scheme == ("dark" if size == "phone" else "light"):
                assert complaints(page) == [], path
            shown = page.content()
            assert ROW not in shown
            assert SECRET not in shown


@pytest.mark.parametrize(("size", "scheme"), [LOOKS[0], LOOKS[3]])
def test_the_first_paint_with_3000_tables_takes_less_than_a_second(
    browser: Browser, address: str, size: str, scheme: str
) -> None:
    with viewing(browser, size, scheme) as page:
        page.goto(address + "/")  # the first look, and the files of the page
        for path in ("/", "/tables"):
            page.goto(address + path)
            paint = page.evaluate(FIRST_PAINT)
            assert paint < FIRST_PAINT_MS, path
        expect(page.locator("#found")).to_have_text(f"{TABLES:,} of {TABLES:,} tables")
        assert page.locator("#listing tbody tr").count() == 50


def test_the_list_is_filtered_sorted_and_turned_by_keys_alone(
    browser: Browser, address: str
) -> None:
    with viewing(browser, "desk", "light") as page:
        page.goto(address + "/tables")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        page.keyboard.type("coupons s3")
        page.wait_for_url(re.compile(r"q=coupons(\+|%20)s3"))
        expect(page.locator("#found")).not_to_have_text(f"{TABLES:,} of {TABLES:,} tables")
        names = page.locator("#listing tbody th").all_inner_texts()
        assert names
        assert all("coupons" in name and "s3" in name for name in names)
        assert page.evaluate("document.activeElement.id") == "q", "typing goes on"
        page.get_by_role("link", name="Freshness").focus()
        page.keyboard.press("Enter")
        sorted_by = page.locator("th[aria-sort]")
        expect(sorted_by).to_contain_text("Freshness")
        page.get_by_label("State or condition").select_option("incremental")
        page.wait_for_url(re.compile("state=incremental&sort=freshness"))
        expect(sorted_by).to_contain_text("Freshness")
        page.goto(address + "/tables")
        page.get_by_role("link", name="Next", exact=True).click()
        expect(page.locator("nav.pages")).to_contain_text("51 to 100")
        assert "page=2" in page.url


def test_the_list_works_without_scripts(browser: Browser, address: str) -> None:
    with viewing(browser, "phone", "dark", java_script_enabled=False) as page:
        page.goto(address + "/tables")
        page.get_by_label("Name has").fill("public.refunds")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("#found")).to_have_text(f"1 of {TABLES:,} tables")
        page.get_by_role("link", name="shop:public.refunds").click()
        expect(page.locator(".remedy")).to_contain_text("tributary retry shop:public.refunds")
        expect(page.locator(".message")).to_contain_text("login of admin with ***")


def test_a_screen_reader_hears_states_bars_and_cells(browser: Browser, address: str) -> None:
    with viewing(browser, "desk", "light") as page:
        page.goto(address + "/copies")
        bar = page.get_by_role("img", name="18 of 40 chunks are committed")
        expect(bar).to_be_visible()
        expect(page.locator(".figures").first).to_contain_text("40,000 rows/s")
        expect(page.locator(".figures").first).to_contain_text("24 s left")
        page.goto(f"{address}/table?name={ORDERS}")
        expect(page.get_by_role("cell", name=re.compile("complete, 3 late rows"))).to_have_count(1)
        expect(page.locator(".chart canvas")).to_be_visible()
        expect(page.get_by_text("column 'gift' was added")).to_be_visible()
        first = page.locator("time").first.get_attribute("datetime")
        assert first is not None
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first)


def test_a_report_is_one_file_that_needs_nothing_else(
    browser: Browser, fleet: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operate.ui.report.FactReader", lambda services, _bound: Reader(services))
    file = tmp_path / "report.html"
    written = write_report(fleet, file)
    assert (written.tables, written.bytes) == (TABLES, file.stat().st_size)
    shown = file.read_text("utf-8")
    assert ROW not in shown
    assert SECRET not in shown
    for size, scheme in (LOOKS[1], LOOKS[2]):
        with viewing(browser, size, scheme) as page:
            page.goto(file.as_uri())
            assert page.locator("#tables tbody tr").count() == TABLES
            assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
            assert page.locator(".tile").first.evaluate("e => getComputedStyle(e).borderTopWidth")


@pytest.mark.skipif("TRIBUTARY_WRITE_PAGES" not in os.environ, reason="it writes docs/ui.png")
def test_the_picture_of_the_readme(browser: Browser, address: str) -> None:
    with viewing(browser, "desk", "light") as page:
        page.goto(address + "/")
        part = {"x": 0, "y": 0, "width": SIZES["desk"][0], "height": 1180}
        page.screenshot(path=ROOT / "docs" / "ui.png", full_page=True, clip=part)
