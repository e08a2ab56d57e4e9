"""The web application of ``tributary ui``.

All viewers share one reading of the fleet's facts, which each page shows. Some pages also query the
state store when a viewer opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cdc.runtime.step_times import STEPS
from operate.history import Kind, history
from operate.ui.calendar import calendar
from operate.ui.copies import copies
from operate.ui.fleet import overview, slowest_runs
from operate.ui.rendering import ASSETS, Pages, asset
from operate.ui.table_page import table_page
from operate.ui.tables import FILTERS, Wanted, listing
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from starlette.requests import Request

    from operate.context import Services
    from operate.status import Status
    from operate.ui.looks import Look, Looks

SPANS = {"1h": 1, "6h": 6, "24h": 24, "7d": 168}
"""The time spans that the history's page can show, as a mapping from the label to the hours."""
EVENTS = 200
"""Maximum number of events of each kind on the page of the history."""
_CALENDARS = 6
"""Maximum number of calendars on a page; each calendar takes a query of the state store."""


class Ui:
    """The pages of ``tributary ui``.

    Args:
        services: The services. No Spark session is started.
        looks: Returns the newest reading of the fleet's facts, which all pages share.
    """

    def __init__(self, services: Services, looks: Looks) -> None:
        self._services = services
        self._looks = looks
        self._pages = Pages()

    def app(self) -> Starlette:
        """Return the application; it has no route that changes anything."""
        pages = {
            "/": self._overview,
            "/tables": self._tables,
            "/table": self._table,
            "/copies": self._copies,
            "/sources": self._sources,
            "/history": self._history,
            "/checks": self._checks,
            "/periods": self._periods,
        }
        routes = [Route(path, self._page(path, page)) for path, page in pages.items()]
        routes += [Route("/healthz", lambda _: Response("ok\n", media_type="text/plain"))]
        routes += [Route("/static/{name}", _static_file)]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._refused})

    def _page(
        self, path: str, page: Callable[[Request, Look, Status], tuple[str, dict[str, Any]]]
    ) -> Callable[[Request], Response]:
        """Return a page's endpoint.

        The endpoint runs in a thread, since the state store's driver blocks.
        """

        def endpoint(request: Request) -> Response:
            look = self._looks.newest()
            if look is None or look.facts.status is None:
                message = "The state store does not answer, or not in time."
                return self._problem(503, message, "Run `tributary check`, which names the cause.")
            try:
                template, values = page(request, look, look.facts.status)
                text = self._pages.render(template, here=path, at=look.facts.read_at, **values)
            except TributaryError as error:
                return self._problem(503, error.message, error.remedy)
            return HTMLResponse(text, headers={"cache-control": "no-store"})

        return endpoint

    def _problem(self, status: int, message: str, remedy: str | None) -> Response:
        values: Mapping[str, Any] = {"here": "", "at": None, "message": message, "remedy": remedy}
        text = self._pages.render("problem.html", **values)
        return HTMLResponse(text, status, headers={"cache-control": "no-store"})

    def _refused(self, _request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        what = "There is no such page or table." if status == 404 else "The request is refused."
        return self._problem(status, what, "Go back to the overview.")

    def _overview(
        self, _request: Request, look: Look, _status: Status
    ) -> tuple[str, dict[str, Any]]:
        return "overview.html", {"fleet": overview(look.facts), "copies": copies(look)[:6]}

    def _tables(self, request: Request, _look: Look, status: Status) -> tuple[str, dict[str, Any]]:
        wanted = Wanted.of(request.query_params)
        found = listing(status.tables, wanted)
        return "tables.html", {"listing": found, "filters": FILTERS}

    def _table(self, request: Request, look: Look, _status: Status) -> tuple[str, dict[str, Any]]:
        found = table_page(self._services, look, request.query_params.get("name", ""))
        if found is None:
            raise HTTPException(404)
        return "table.html", {"page": found}

    def _copies(self, _request: Request, look: Look, _status: Status) -> tuple[str, dict[str, Any]]:
        return "copies.html", {"copies": copies(look)}

    def _sources(
        self, _request: Request, look: Look, _status: Status
    ) -> tuple[str, dict[str, Any]]:
        return "sources.html", {"fleet": overview(look.facts)}

    def _history(self, request: Request, look: Look, _status: Status) -> tuple[str, dict[str, Any]]:
        span = request.query_params.get("since", "")
        span = span if span in SPANS else "6h"
        kind = request.query_params.get("kind", "")
        kinds = [one for one in Kind if one.value == kind]
        since = look.facts.read_at - timedelta(hours=SPANS[span])
        events = history(self._services, since, None, kinds, most=EVENTS)[::-1]
        newest = (look.facts.runs or {}).values()
        slowest = slowest_runs((one for one in newest if one.started_at >= since), 10)
        return "history.html", {
            "events": events[:EVENTS],
            "slowest": slowest,
            "span": span,
            "spans": list(SPANS),
            "kind": kind if kinds else "",
            "kinds": [one.value for one in Kind],
            "steps": STEPS,
            "most": EVENTS,
        }

    def _checks(self, request: Request, _look: Look, status: Status) -> tuple[str, dict[str, Any]]:
        compared = [one for one in status.tables if one.verified is not None or one.checks]
        wanted = Wanted.of(request.query_params)
        return "checks.html", {
            "listing": listing(compared, wanted),
            "without": len(status.tables) - len(compared),
        }

    def _periods(self, request: Request, look: Look, status: Status) -> tuple[str, dict[str, Any]]:
        asked = [one for one in status.tables if one.periods is not None]
        now = look.facts.read_at
        asked.sort(key=lambda one: one.periods is None or not one.periods.overdue(now))
        wanted = Wanted.of(request.query_params)
        pages = max(1, -(-len(asked) // _CALENDARS))
        page = min(wanted.page, pages)
        shown = asked[(page - 1) * _CALENDARS : page * _CALENDARS]
        found = [calendar(self._services, one, now) for one in shown]
        return "periods.html", {
            "calendars": [one for one in found if one is not None],
            "asked": len(asked),
            "page": page,
            "pages": pages,
        }


def _static_file(request: Request) -> Response:
    """Answer a viewer's request for one of `ASSETS`, the files that the page loads."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    # The address changes with the content.
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset(name), media_type=ASSETS[name], headers=headers)
