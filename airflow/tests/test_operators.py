"""Tasks of one command each: their command lines, what they hand on, and when they fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tests.documents import CANARY, ITEMS, ORDERS, entry, run_document
from tests.scripted import Scripted
from tributary_airflow.operators import (
    TributaryBootstrapOperator,
    TributaryCheckOperator,
    TributaryChecksOperator,
    TributaryMaintenanceOperator,
    TributaryOnboardOperator,
    TributaryResyncOperator,
    TributaryRunOperator,
    TributaryVerdictOperator,
    TributaryVerifyOperator,
)
from tributary_airflow.outcome import RUN_CONDITIONS

FAIL_ON = ",".join(RUN_CONDITIONS)
NIGHTLY = ("--scheduled", "--")


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (TributaryOnboardOperator(task_id="t", tables=["a.*"]), ["onboard", *NIGHTLY, "a.*"]),
        (
            TributaryOnboardOperator(task_id="t", tables=["a.b"], strict=True),
            ["onboard", "--scheduled", "--strict", "--", "a.b"],
        ),
        (TributaryBootstrapOperator(task_id="t", tables=["a.b"]), ["bootstrap", "--", "a.b"]),
        (TributaryResyncOperator(task_id="t", tables=["-a.b"]), ["resync", "--", "-a.b"]),
        (
            TributaryRunOperator(task_id="t", tier="hot"),
            ["run", "--tier", "hot", "--fail-on", FAIL_ON],
        ),
        (
            TributaryRunOperator(task_id="t", tables=["a.b"], fail_on=["late"]),
            ["run", "--fail-on", "late", "--", "a.b"],
        ),
        (
            TributaryVerifyOperator(task_id="t", tables=["a.b"], max_seconds=60, go_on=True),
            ["verify", "--max-seconds", "60", "--continue", "--", "a.b"],
        ),
        (
            TributaryVerifyOperator(task_id="t", tables=["a.b"], sample=0.05),
            ["verify", "--sample", "0.05", "--", "a.b"],
        ),
        (
            TributaryChecksOperator(task_id="t", tables=["a.b"], everything=True, names=["whole"]),
            ["checks", "run", "--all", "--name", "whole", "--", "a.b"],
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else type(one).__name__,
)
def test_each_operator_has_its_command_line(
    scripted: Scripted, operator: Any, words: list[str]
) -> None:
    document = {"tables": [entry(ORDERS, commits=1)], "results": [{"outcome": "passed"}]}
    scripted.answer(words[0], documents=(document,))
    found = operator.execute({})
    assert scripted.calls == [words]
    assert found["tables"] == {ORDERS: {"state": "incremental", "commits": 1}}


def test_a_table_that_needs_another_copy_is_copied_again_if_the_task_may(
    scripted: Scripted,
) -> None:
    needs = {"tables": [entry(ORDERS, "needs_bootstrap"), entry(ITEMS)], "left_out": []}
    scripted.answer("onboard", code=4, documents=(needs,))
    scripted.answer("bootstrap", documents=({"tables": [entry(ORDERS)]},))
    with pytest.raises(AirflowFailException):
        TributaryOnboardOperator(task_id="t", tables=["a.*"]).execute({})
    found = TributaryOnboardOperator(task_id="t", tables=["a.*"], copy_again=True).execute({})
    assert scripted.calls[1:] == [["onboard", *NIGHTLY, "a.*"], ["bootstrap", "--", ORDERS]]
    assert {one["state"] for one in found["tables"].values()} == {"incremental"}


def test_another_table_that_failed_still_fails_the_task(scripted: Scripted) -> None:
    tables = [entry(ORDERS, "needs_bootstrap"), entry(ITEMS, "failed", "KafkaError")]
    scripted.answer("onboard", code=4, documents=({"tables": tables},))
    scripted.answer("bootstrap", documents=({"tables": [entry(ORDERS)]},))
    with pytest.raises(AirflowException, match=ITEMS) as raised:
        TributaryOnboardOperator(task_id="t", tables=["a.*"], copy_again=True).execute({})
    assert CANARY not in str(raised.value)


def test_a_source_that_is_down_is_tried_again_after_the_other_copies(scripted: Scripted) -> None:
    """The exit code for the table that needs a copy hides the one for the source."""
    away = {"error": "UnreachableError", "message": CANARY, "remedy": "Start it."}
    tables = [entry(ORDERS, "needs_bootstrap", "LostHistoryError"), entry(ITEMS)]
    scripted.answer("onboard", code=4, documents=({"tables": tables, "problems": [away]},))
    broken = [entry(ORDERS, "needs_bootstrap", "SchemaError")]
    scripted.answer("bootstrap", code=4, documents=({"tables": broken},), times=1)
    scripted.answer("bootstrap", documents=({"tables": [entry(ORDERS)]},))
    for copy_again, named in ((True, "SchemaError"), (True, ""), (False, "LostHistoryError")):
        operator = TributaryOnboardOperator(task_id="t", tables=["a.*"], copy_again=copy_again)
        with pytest.raises(AirflowException, match="UnreachableError") as raised:
            operator.execute({})
        assert not isinstance(raised.value, AirflowFailException)
        assert named in str(raised.value)
        assert CANARY not in str(raised.value)
    assert [one[0] for one in scripted.calls] == ["onboard", "bootstrap"] * 2 + ["onboard"]


@pytest.mark.parametrize("copy_again", [True, False])
def test_a_strict_onboarding_fails_for_a_table_that_was_left_out(
    scripted: Scripted, *, copy_again: bool
) -> None:
    left = [entry(ITEMS, "x", "CaptureError")]
    needs = {"tables": [entry(ORDERS, "needs_bootstrap")], "left_out": left}
    scripted.answer("onboard", code=4, documents=(needs,))
    scripted.answer("bootstrap", documents=({"tables": [entry(ORDERS)]},))
    operator = TributaryOnboardOperator(
        task_id="t", tables=["a.*"], strict=True, copy_again=copy_again
    )
    with pytest.raises(AirflowFailException, match=f"{ITEMS}: CaptureError") as raised:
        operator.execute({})
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "document", "raised"),
    [
        (3, run_document(failed=[ORDERS]), AirflowException),
        (3, run_document(late=[ORDERS]), AirflowException),
        (4, run_document(needs_bootstrap=[ORDERS]), AirflowFailException),
        (1, {"error": "StateError", "message": CANARY, "remedy": "x"}, AirflowException),
        (1, {"error": "ConfigError", "message": CANARY, "remedy": "x"}, AirflowFailException),
    ],
)
def test_a_run_fails_by_its_exit_code(
    scripted: Scripted, code: int, document: Any, raised: type[Exception]
) -> None:
    scripted.answer("run", code=code, documents=(document,))
    with pytest.raises(raised) as found:
        TributaryRunOperator(task_id="t").execute({})
    assert isinstance(found.value, AirflowFailException) is (raised is AirflowFailException)
    assert CANARY not in str(found.value)


def test_a_run_that_hands_on_leaves_tables_and_captures_to_other_tasks(scripted: Scripted) -> None:
    document = run_document(entry(ORDERS, "failed", "KafkaError"), failed=[ORDERS], silent=["s/t"])
    scripted.answer("run", code=3, documents=(document,))
    found = TributaryRunOperator(task_id="t", hands_on=True).execute({})
    assert (found["exit_code"], found["conditions"]) == (
        3,
        {"failed": [ORDERS], "silent": ["s/t"]},
    )
    assert CANARY not in json.dumps(found)
    verdict = TributaryVerdictOperator(task_id="v", run_task_id="t", own=[ORDERS])
    with pytest.raises(AirflowFailException, match="silent: s/t"):
        verdict.execute({"ti": Pulled(found)})
    with pytest.raises(AirflowFailException, match="handed nothing on"):
        verdict.execute({"ti": Pulled(None)})
    del found["conditions"]["silent"]
    verdict.execute({"ti": Pulled(found)})


class Pulled:
    def __init__(self, found: Any) -> None:
        self.found = found

    def xcom_pull(self, task_ids: str) -> Any:
        return self.found


def test_an_error_is_no_result_that_could_be_handed_on(scripted: Scripted) -> None:
    document = {"error": "StateError", "message": CANARY, "remedy": "x"}
    scripted.answer("run", code=1, documents=(document,))
    with pytest.raises(AirflowException):
        TributaryRunOperator(task_id="t", hands_on=True).execute({})


def test_checks_of_which_none_is_due_are_skipped(scripted: Scripted) -> None:
    scripted.answer("checks", documents=({"results": [], "tables": []},))
    with pytest.raises(AirflowSkipException):
        TributaryChecksOperator(task_id="t").execute({})


def test_generations_are_removed_of_each_table_whatever_others_do(scripted: Scripted) -> None:
    broken = {"error": "LakeError", "message": CANARY, "remedy": "x"}
    scripted.answer("generations", ORDERS, code=1, documents=(broken,), times=1)
    scripted.answer("generations", documents=({"removed": [{"attempt": "a"}]},))
    operator = TributaryMaintenanceOperator(task_id="t", tables=[ORDERS, ITEMS])
    with pytest.raises(AirflowException, match="LakeError") as raised:
        operator.execute({})
    assert CANARY not in str(raised.value)
    assert scripted.calls[1] == ["generations", "remove", "--", ITEMS]
    assert operator.execute({}) == {ORDERS: 1, ITEMS: 1}


def test_a_check_names_what_failed_without_its_detail(scripted: Scripted) -> None:
    checks = [{"status": "error", "name": "kafka", "detail": CANARY, "remedy": "x"}]
    document = {"checks": checks, "errors": 1, "warnings": 0}
    scripted.answer("check", code=1, documents=(document,), times=1)
    scripted.answer("check", documents=({"checks": [], "errors": 0, "warnings": 2},))
    with pytest.raises(AirflowException, match="kafka") as raised:
        TributaryCheckOperator(task_id="t").execute({})
    assert CANARY not in str(raised.value)
    assert TributaryCheckOperator(task_id="t").execute({}) == {"errors": 0, "warnings": 2}
