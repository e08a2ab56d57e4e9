"""Tasks of one table: its result, and its complete periods as events of its asset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tests.documents import CANARY, ORDERS, entry, period, run_document
from tests.scripted import Scripted
from tributary_airflow.outcome import summary
from tributary_airflow.process import Ran
from tributary_airflow.tables import (
    TributaryPeriodsOperator,
    TributaryTableOperator,
    published,
    unpublished,
)


def context(operator: Any, found: Any = None, tries: int = 1, events: Any = ()) -> dict[str, Any]:
    ti = SimpleNamespace(try_number=tries, xcom_pull=lambda task_ids: found)
    outlet = SimpleNamespace(
        extra=None, keys=[], add_partitions=lambda keys: outlet.keys.extend(keys)
    )
    return {
        "ti": ti,
        "outlet_events": {operator.outlets[0]: outlet},
        "inlet_events": _Inlets(events),
    }


class _Inlets:
    def __init__(self, events: Any) -> None:
        self.events = events

    def __getitem__(self, asset: Any) -> _Inlets:
        return self

    def ascending(self, ascending: bool) -> _Inlets:
        assert not ascending
        return self

    def limit(self, most: int) -> list[Any]:
        return [SimpleNamespace(partition_key=key, extra=extra) for key, extra in self.events][
            :most
        ]


def handed_on(code: int, document: Any) -> Any:
    return summary(Ran(("run",), code, (document,)))


def table_task() -> TributaryTableOperator:
    return TributaryTableOperator(task_id="t", table=ORDERS, run_task_id="run")


def test_a_table_with_changes_is_an_event_of_its_asset() -> None:
    operator = table_task()
    document = run_document(entry(ORDERS, commits=2, events=7))
    given = context(operator, handed_on(0, document))
    assert operator.execute(given) == {"commits": 2, "events": 7}
    assert given["outlet_events"][operator.changed].extra == {"commits": 2, "events": 7}


def test_a_table_without_changes_is_no_event() -> None:
    operator = table_task()
    with pytest.raises(AirflowSkipException):
        operator.execute(context(operator, handed_on(0, run_document())))


def test_a_failed_table_runs_by_itself_at_the_next_try(scripted: Scripted) -> None:
    operator = table_task()
    broken = run_document(entry(ORDERS, "failed", "KafkaError"), failed=[ORDERS])
    with pytest.raises(AirflowException, match="has failed") as raised:
        operator.execute(context(operator, handed_on(3, broken)))
    assert not isinstance(raised.value, AirflowFailException)
    assert scripted.calls == []
    scripted.answer("retry", documents=({"tables": [entry(ORDERS)]},))
    scripted.answer("run", documents=(run_document(entry(ORDERS, commits=1, events=1)),))
    for given in (context(operator, tries=2), context(operator)):  # also if nothing was handed on
        assert operator.execute(given) == {"commits": 1, "events": 1}
    assert [words[0] for words in scripted.calls] == ["retry", "run"] * 2
    assert scripted.calls[1][-2:] == ["--", ORDERS]


def test_a_run_of_a_try_that_did_not_work_is_an_error(scripted: Scripted) -> None:
    operator = table_task()
    scripted.answer("retry", code=3)
    scripted.answer(
        "run", code=1, documents=({"error": "StateError", "message": CANARY, "remedy": "x"},)
    )
    with pytest.raises(AirflowException, match="StateError") as raised:
        operator.execute(context(operator, tries=2))
    assert CANARY not in str(raised.value)


def facts(*hours: Any) -> dict[str, Any]:
    return {
        one["period"]: {key: one[key] for key in ("start", "end", "revision", "late_rows")}
        for one in hours
    }


def test_the_newest_period_is_the_first_that_is_published() -> None:
    assert unpublished([period(1), period(2)], {}, None) == facts(period(2))
    assert unpublished([], {}, None) == {}
    since = unpublished([period(1), period(2), period(3)], {}, "2026-11-23T02")
    assert since == facts(period(2), period(3))


def test_later_periods_and_higher_revisions_are_published_once() -> None:
    known = published([("2026-11-23T02", {"periods": facts(period(2))})])
    listed = [period(1), period(2), period(3)]
    assert unpublished(listed, known, None) == facts(period(3))
    late = [period(1), period(2, revision=2, late=4)]
    assert unpublished(late, known, None) == facts(late[1])
    known = published(
        [
            ("2026-11-23T02", {"periods": facts(late[1])}),
            ("2026-11-23T02", {"periods": facts(period(2))}),
        ]
    )
    assert unpublished(late, known, None) == {}


def test_an_event_that_somebody_else_made_counts_as_the_first_revision() -> None:
    """The REST interface of Airflow has events of partitions, too."""
    known = published([("2026-11-23T02", None), (None, None)])
    assert known == {"2026-11-23T02": {"revision": 1}}
    assert unpublished([period(2)], known, None) == {}
    assert unpublished([period(2), period(3)], known, None) == facts(period(3))


def test_new_periods_are_partitions_of_the_asset(scripted: Scripted) -> None:
    operator = TributaryPeriodsOperator(task_id="t", table=ORDERS)
    scripted.answer("complete", documents=({"table": ORDERS, "periods": [period(2), period(3)]},))
    earlier = ("2026-11-23T01", {"periods": facts(period(1))})
    given = context(operator, events=[earlier])
    assert operator.execute(given) == ["2026-11-23T02", "2026-11-23T03"]
    outlet = given["outlet_events"][operator.complete]
    assert outlet.keys == ["2026-11-23T02", "2026-11-23T03"]
    assert outlet.extra == {"periods": facts(period(2), period(3))}
    assert scripted.calls == [["complete", "--", ORDERS]]
    again = context(
        operator, events=[("2026-11-23T03", outlet.extra), ("2026-11-23T02", outlet.extra)]
    )
    with pytest.raises(AirflowSkipException):
        operator.execute(again)
    assert again["outlet_events"][operator.complete].keys == []


def test_the_periods_of_an_offboarded_table_are_skipped(scripted: Scripted) -> None:
    operator = TributaryPeriodsOperator(task_id="t", table=ORDERS)
    gone = {
        "error": "StateError",
        "message": CANARY,
        "remedy": "x",
        "context": {"state": "retired"},
    }
    scripted.answer("complete", code=1, documents=(gone,))
    with pytest.raises(AirflowSkipException, match="was offboarded"):
        operator.execute(context(operator))


def test_a_table_without_periods_in_its_settings_fails_for_good(scripted: Scripted) -> None:
    operator = TributaryPeriodsOperator(task_id="t", table=ORDERS)
    document = {"error": "ConfigError", "message": CANARY, "remedy": "Set completeness."}
    scripted.answer("complete", code=1, documents=(document,))
    with pytest.raises(AirflowFailException, match="Set completeness"):
        operator.execute(context(operator))
