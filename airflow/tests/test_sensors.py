"""Sensors and their triggers."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.serde import deserialize, serialize

from tests.documents import CANARY, ORDERS, table
from tests.scripted import Scripted
from tributary_airflow.sensors import TributaryCompletenessSensor, TributaryFreshnessSensor
from tributary_airflow.triggers import CompletenessTrigger, FreshnessTrigger, TributaryTrigger

PERIOD = "2026-11-23T10"


def deferred(sensor: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        sensor.execute({})
    return raised.value


def completeness(**more: Any) -> TributaryCompletenessSensor:
    return TributaryCompletenessSensor(
        task_id="t", table=ORDERS, period=PERIOD, poke_interval=0.1, **more
    )


def again(trigger: TributaryTrigger) -> TributaryTrigger:
    """The trigger as the triggerer makes it, from what the database has of it."""
    _, arguments = trigger.serialize()
    made: TributaryTrigger = type(trigger)(**deserialize(serialize(arguments)))
    assert made.serialize() == trigger.serialize()
    return made


def fired(trigger: TributaryTrigger) -> dict[str, Any]:
    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    payload: dict[str, Any] = asyncio.run(first())
    return payload


def test_a_deferred_sensor_waits_until_the_period_is_complete(scripted: Scripted) -> None:
    scripted.answer(
        "complete", code=1, documents=({"completion": "not yet", "reason": CANARY},), times=2
    )
    scripted.answer("complete", documents=({"completion": "complete"},))
    sensor = completeness(timeout=600)
    found = deferred(sensor)
    assert found.timeout == timedelta(seconds=600)
    assert isinstance(found.trigger, CompletenessTrigger)
    assert CANARY not in str(found.trigger.serialize())
    event = fired(again(found.trigger))
    assert scripted.calls == [["complete", "--", ORDERS, PERIOD]] * 3
    sensor.answered({}, event)


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (
            {"code": 4, "documents": ({"completion": "cannot become complete"},)},
            AirflowFailException,
        ),
        (
            {"code": 1, "documents": ({"error": "ConfigError", "remedy": "x"},)},
            AirflowFailException,
        ),
        (
            {"code": 1, "documents": ({"error": "StateError", "message": CANARY, "remedy": "x"},)},
            None,
        ),
        ({"code": 0, "documents": ("no json",)}, None),
        ({"code": 0, "seconds": 60}, None),
    ],
    ids=["cannot", "settings", "store", "no json", "hangs"],
)
def test_a_sensor_ends_if_its_questions_go_wrong(
    scripted: Scripted, answer: Any, raised: type[Exception] | None
) -> None:
    scripted.answer("complete", **answer)
    sensor = completeness(question_timeout=1.0)
    began = time.monotonic()
    event = fired(again(deferred(sensor).trigger))
    assert time.monotonic() - began < 60
    assert len(scripted.calls) == (1 if raised else 5)
    with pytest.raises(raised or AirflowException) as found:
        sensor.answered({}, event)
    assert isinstance(found.value, AirflowFailException) is bool(raised)
    assert CANARY not in str(found.value)


def test_errors_before_an_answer_are_forgotten(scripted: Scripted) -> None:
    broken = {"error": "StateError", "message": CANARY, "remedy": "x"}
    not_yet = {"completion": "not yet"}
    for code, document in ((1, broken), (1, broken), (1, not_yet), (1, broken), (1, broken)):
        scripted.answer("complete", code=code, documents=(document,), times=1)
    scripted.answer("complete", documents=({"completion": "complete"},))
    assert fired(again(deferred(completeness()).trigger)) == {"verdict": "done", "message": ""}


def test_a_program_that_is_not_there_ends_the_sensor() -> None:
    trigger = CompletenessTrigger(
        ORDERS, PERIOD, program={"binary": "/none/such"}, poll_s=0.01, bound_s=30
    )
    assert fired(trigger)["verdict"] == "fail"
    trigger.program["directory"] = "/none/such"
    assert fired(trigger)["verdict"] == "retry"


def test_fresh_tables_are_waited_for(scripted: Scripted) -> None:
    old, new = {"tables": [table(freshness_s=90.0)]}, {"tables": [table()]}
    scripted.answer("status", documents=(old,), times=1)
    scripted.answer("status", documents=(new,))
    sensor = TributaryFreshnessSensor(task_id="t", tier="hot", max_age=30, poke_interval=0.1)
    trigger = deferred(sensor).trigger
    assert isinstance(trigger, FreshnessTrigger)
    assert fired(again(trigger))["verdict"] == "done"
    assert scripted.calls == [["status", "--tier", "hot"]] * 2


def test_a_sensor_can_ask_from_a_worker(scripted: Scripted) -> None:
    scripted.answer("complete", code=1, documents=({"completion": "not yet"},), times=1)
    scripted.answer("complete", documents=({"completion": "complete"},))
    sensor = completeness(deferrable=False)
    assert [sensor.poke({}), sensor.poke({})] == [False, True]
    scripted.answer("status", code=1, documents=({"error": "StateError", "remedy": "x"},))
    with pytest.raises(AirflowException):
        TributaryFreshnessSensor(task_id="t", deferrable=False).poke({})
