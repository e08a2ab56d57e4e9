"""What exit codes and JSON mean for a task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.documents import table
from tributary_airflow.outcome import (
    DONE,
    Verdict,
    judge,
    judge_announced,
    judge_checks,
    judge_freshness,
    judge_period,
    judge_rest,
    judge_run,
    judge_table,
    judge_verify,
    summary,
)
from tributary_airflow.process import Ran

CANARY = "canary-4711"
ORDERS, ITEMS = "shop:public.orders", "shop:public.items"


def ran(code: int, document: Any = None) -> Ran:
    return Ran(("run",), code, () if document is None else (document,))


def error(kind: str) -> dict[str, Any]:
    return {"error": kind, "message": f"Key (id)=({CANARY})", "remedy": "Do it.", "context": {}}


def failed(kind: str, table: str = ORDERS) -> dict[str, Any]:
    return {"table": table, "action": "copy", "state": "failed", "error": error(kind)}


@pytest.mark.parametrize(
    ("code", "document", "verdict"),
    [
        (0, {"tables": []}, Verdict.DONE),
        (1, error("StateError"), Verdict.RETRY),
        (1, error("ConfigError"), Verdict.FAIL),
        (1, None, Verdict.RETRY),
        (2, None, Verdict.FAIL),
        (3, {"tables": [failed("KafkaError")]}, Verdict.RETRY),
        (3, {"tables": [failed("SecretError")]}, Verdict.FAIL),
        (3, {"tables": [failed("SecretError"), failed("KafkaError", ITEMS)]}, Verdict.RETRY),
        (3, {"tables": []}, Verdict.RETRY),
        (4, {"tables": [failed("SchemaChangeError")]}, Verdict.FAIL),
        (4, {"tables": [], "problems": [error("UnreachableError")]}, Verdict.RETRY),
        (4, {"tables": [], "problems": [error("ConfigError")]}, Verdict.FAIL),
        (126, None, Verdict.FAIL),
        (127, None, Verdict.FAIL),
        (137, None, Verdict.RETRY),
        (143, None, Verdict.RETRY),
    ],
)
def test_each_exit_code_has_its_verdict(code: int, document: Any, verdict: Verdict) -> None:
    judged = judge(ran(code, document), messages=False)
    assert judged.verdict is verdict
    assert CANARY not in judged.message
    assert verdict is Verdict.DONE or judged.message


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        ({"tables": [], "problems": [error("UnreachableError")]}, Verdict.RETRY),
        ({"tables": [], "problems": [error("ConfigError")]}, Verdict.FAIL),
        (
            {"tables": [failed("SecretError")], "problems": [error("UnreachableError")]},
            Verdict.RETRY,
        ),
    ],
)
def test_a_source_that_is_down_is_a_reason_and_is_tried_again(
    document: Any, verdict: Verdict
) -> None:
    found = ran(3, document)
    judged = judge(found, messages=False)
    assert judged.verdict is verdict
    kind = document["problems"][0]["error"]
    assert f"{kind}. What to do: Do it." in judged.message
    assert summary(found)["problems"] == [{"error": kind, "words": f"{kind}. What to do: Do it."}]
    assert CANARY not in judged.message + json.dumps(summary(found))


def test_what_is_left_after_another_copy_has_a_verdict_of_its_own() -> None:
    needs, other = failed("LostHistoryError"), failed("SecretError", ITEMS)
    away = error("UnreachableError")
    for document, verdict in (
        ({"tables": [needs]}, Verdict.DONE),
        ({"tables": [needs], "problems": [away]}, Verdict.RETRY),
        ({"tables": [needs, other]}, Verdict.FAIL),
        ({"tables": [needs, other], "problems": [away]}, Verdict.RETRY),
    ):
        judged = judge_rest(ran(4, document), [ORDERS], messages=False)
        assert judged.verdict is verdict
        assert ORDERS not in judged.message
        assert ("UnreachableError" in judged.message) is ("problems" in document)


@pytest.mark.parametrize("code", [3, 4])
def test_a_table_that_was_left_out_fails_a_strict_onboarding_for_good(code: int) -> None:
    """Exit code 4 for a table that is copied again hides exit code 3 of --strict."""
    needs, left = failed("LostHistoryError"), failed("CaptureError", ITEMS)
    document: dict[str, Any] = {"tables": [needs][code == 3 :], "left_out": [left]}
    for found in (document, document | {"problems": [error("UnreachableError")]}):
        rest = judge_rest(ran(code, found), [ORDERS], messages=False, strict=True)
        whole = judge(ran(code, found), messages=False, strict=True)
        assert rest.verdict is (Verdict.RETRY if "problems" in found else Verdict.FAIL)
        assert whole.verdict is rest.verdict
        for judged in (rest, whole):
            assert f"{ITEMS}: CaptureError. What to do: Do it." in judged.message
            assert CANARY not in judged.message
    assert judge_rest(ran(code, document), [ORDERS], messages=False) is DONE


def test_a_message_of_an_error_is_shown_only_if_it_is_asked_for() -> None:
    found = ran(3, {"tables": [failed("KafkaError")]})
    quiet, loud = (judge(found, messages=one).message for one in (False, True))
    assert quiet.endswith(f"{ORDERS}: KafkaError. What to do: Do it.")
    assert CANARY in loud
    assert CANARY not in json.dumps(summary(found))
    assert CANARY in json.dumps(summary(found, messages=True))


def test_what_a_task_hands_on_has_no_keys_of_rows() -> None:
    document = {
        "tables": [
            {
                "table": ORDERS,
                "equal": False,
                "differences": [{"kind": "missing", "key": {"id": CANARY}, "columns": []}],
                "difference_count": 1,
                "unsettled": [{"id": CANARY}],
                "unsettled_count": 1,
                "offsets": {"0": 5},
            }
        ]
    }
    found = ran(3, document)
    assert CANARY not in json.dumps(summary(found))
    judged = judge_verify(found, messages=True)
    assert judged.verdict is Verdict.FAIL
    assert CANARY not in judged.message
    assert f"{ORDERS}: 1 differences" in judged.message


def test_a_comparison_that_did_not_work_is_tried_again() -> None:
    document = {"tables": [{**failed("KafkaError"), "equal": False}]}
    assert judge_verify(ran(3, document), messages=False).verdict is Verdict.RETRY


GONE = {**error("StateError"), "context": {"table": ITEMS, "state": "retired"}}
OFFBOARDED = {"table": ITEMS, "equal": False, "error": GONE}


@pytest.mark.parametrize(
    ("tables", "verdict"),
    [
        ([OFFBOARDED], Verdict.SKIP),
        ([OFFBOARDED, {"table": ORDERS, "equal": True}], Verdict.DONE),
        ([OFFBOARDED, {"table": ORDERS, "equal": False, "difference_count": 1}], Verdict.FAIL),
        ([OFFBOARDED, failed("KafkaError")], Verdict.RETRY),
        ([OFFBOARDED, failed("SecretError")], Verdict.FAIL),
    ],
)
def test_a_comparison_leaves_offboarded_tables_out(tables: Any, verdict: Verdict) -> None:
    """They are still in tributary.yaml, from which the DAGs have their tasks."""
    judged = judge_verify(ran(3, {"tables": tables}), messages=False)
    assert judged.verdict is verdict
    assert CANARY not in judged.message


def test_an_offboarded_table_has_no_periods_to_publish() -> None:
    for document, verdict in ((GONE, Verdict.SKIP), (error("StateError"), Verdict.RETRY)):
        judged = judge_announced(ran(1, document), ITEMS, messages=False)
        assert judged.verdict is verdict
        assert CANARY not in judged.message


def results(*outcomes: str) -> dict[str, Any]:
    found = [
        {"table": ORDERS, "check": "whole", "outcome": one, "detail": CANARY} for one in outcomes
    ]
    return {"results": found, "tables": []}


@pytest.mark.parametrize(
    ("code", "document", "verdict"),
    [
        (0, results(), Verdict.SKIP),
        (0, results("passed"), Verdict.DONE),
        (0, results("failed"), Verdict.DONE),  # its policy is to report
        (3, results("failed"), Verdict.FAIL),
        (3, results("error"), Verdict.RETRY),
        (1, error("StateError"), Verdict.RETRY),
    ],
)
def test_checks_of_the_data_have_their_verdicts(code: int, document: Any, verdict: Verdict) -> None:
    judged = judge_checks(ran(code, document), messages=False)
    assert judged.verdict is verdict
    assert CANARY not in judged.message


def run_of(code: int, conditions: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    return summary(ran(code, {"tables": [], "conditions": conditions, **more}))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (run_of(0, {}), Verdict.DONE),
        (run_of(3, {"failed": [ORDERS]}), Verdict.DONE),
        (run_of(4, {"needs_bootstrap": [ORDERS]}), Verdict.DONE),
        (run_of(3, {"failed": [ORDERS, ITEMS]}), Verdict.RETRY),
        (run_of(4, {"needs_bootstrap": [ITEMS]}), Verdict.FAIL),
        (run_of(3, {"failed": [ORDERS], "silent": ["shop/default"]}), Verdict.RETRY),
        (run_of(3, {"late": [ITEMS]}), Verdict.RETRY),  # nothing that explains the exit code
        (run_of(3, {"failed": [ORDERS]}, failed_checks=[{"check": "x"}]), Verdict.RETRY),
    ],
)
def test_a_run_fails_for_what_no_other_task_fails_for(found: Any, verdict: Verdict) -> None:
    assert judge_run(found, [ORDERS]).verdict is verdict


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        ({"tables": [{"table": ORDERS, "state": "incremental", "commits": 1}]}, Verdict.DONE),
        ({"tables": [{"table": ORDERS, "state": "incremental", "commits": 0}]}, Verdict.SKIP),
        ({"tables": []}, Verdict.SKIP),
        ({"tables": [{"table": ORDERS, "skipped": True}]}, Verdict.SKIP),
        ({"tables": [], "waiting": {ORDERS: "bootstrapping"}}, Verdict.SKIP),
        ({"tables": [], "waiting": {ORDERS: "paused"}}, Verdict.SKIP),
        ({"tables": [failed("KafkaError")]}, Verdict.RETRY),
        ({"tables": [failed("DecodeError")]}, Verdict.FAIL),
        ({"tables": [failed("KafkaError", ITEMS)]}, Verdict.SKIP),
        ({"tables": [], "conditions": {"failed": [ORDERS]}}, Verdict.RETRY),
        ({"tables": [], "conditions": {"needs_bootstrap": [ORDERS]}}, Verdict.FAIL),
        ({"tables": [], "conditions": {"half_copied": [ORDERS]}}, Verdict.FAIL),
    ],
)
def test_each_table_has_its_own_verdict(document: Any, verdict: Verdict) -> None:
    judged = judge_table(summary(ran(3, document)), ORDERS)
    assert judged.verdict is verdict
    assert CANARY not in judged.message


@pytest.mark.parametrize(
    ("code", "document", "verdict", "waits"),
    [
        (0, {"completion": "complete"}, Verdict.DONE, False),
        (1, {"completion": "not yet", "reason": CANARY}, Verdict.RETRY, True),
        (1, error("StateError"), Verdict.RETRY, False),
        (1, error("ConfigError"), Verdict.FAIL, False),
        (4, {"completion": "cannot become complete", "table": ORDERS}, Verdict.FAIL, False),
        (2, None, Verdict.FAIL, False),
        (0, None, Verdict.RETRY, False),
    ],
)
def test_a_period_is_waited_for_or_not(
    code: int, document: Any, verdict: Verdict, waits: bool
) -> None:
    judged, waiting = judge_period(ran(code, document), messages=False)
    assert (judged.verdict, bool(waiting)) == (verdict, waits)
    assert CANARY not in judged.message + waiting


@pytest.mark.parametrize(
    ("tables", "limit", "verdict", "waits"),
    [
        ([table()], None, Verdict.DONE, False),
        ([table()], 4.0, Verdict.RETRY, True),
        ([table(freshness_s=90.0)], None, Verdict.RETRY, True),
        ([table(freshness_s=90.0)], 100.0, Verdict.DONE, False),
        ([table(freshness_s=None)], 100.0, Verdict.RETRY, True),
        ([table(state="failed")], None, Verdict.RETRY, True),
        ([table(), table(state="catching_up")], None, Verdict.RETRY, True),
        ([table(conditions=["needs_bootstrap"])], None, Verdict.FAIL, False),
        ([], None, Verdict.RETRY, True),
    ],
)
def test_fresh_tables_are_waited_for_or_not(
    tables: Any, limit: float | None, verdict: Verdict, waits: bool
) -> None:
    judged, waiting = judge_freshness(ran(3, {"tables": tables}), limit, messages=False)
    assert (judged.verdict, bool(waiting)) == (verdict, waits)


def test_a_status_that_did_not_work_is_no_fresh_table() -> None:
    assert (
        judge_freshness(ran(1, error("StateError")), None, messages=False)[0].verdict
        is Verdict.RETRY
    )
    assert judge_freshness(ran(2), None, messages=False)[0].verdict is Verdict.FAIL
    assert judge_freshness(ran(0), None, messages=False)[0].verdict is Verdict.RETRY
