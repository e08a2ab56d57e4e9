"""The connection, and what may be in it."""

from __future__ import annotations

import json

import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from tests.scripted import Scripted
from tributary_airflow import provider_info
from tributary_airflow.hook import TributaryHook, program

CANARY = "canary-4711"


def test_airflow_knows_the_package_and_its_kind_of_connection() -> None:
    manager = ProvidersManager()
    assert manager.providers["tributary-airflow"].data["name"] == provider_info()["name"]
    known = ProvidersManagerTaskRuntime().hooks["tributary"]
    assert known is not None
    assert known.hook_class_name == "tributary_airflow.hook.TributaryHook"


def test_a_connection_names_where_the_program_is(scripted: Scripted) -> None:
    made = TributaryHook().get_conn()
    assert made.binary == str(scripted.file)
    assert made.config is not None
    assert made.argv("run", "--", "-t.x") == [
        *(made.binary, "run", "--output", "json", "--config", made.config, "--", "-t.x"),
    ]


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"password": CANARY}, "password"),
        ({"env": {"A": CANARY}}, "env"),
        ({"binary": 5}, "binary"),
        ({"messages": "yes"}, "messages"),
        ({"stop_seconds": 0}, "stop_seconds"),
        ({"stop_seconds": True}, "stop_seconds"),
    ],
)
def test_what_does_not_belong_into_the_extra_is_refused_by_name(
    extra: dict[str, object], named: str
) -> None:
    with pytest.raises(AirflowFailException, match=named) as raised:
        program("c", extra, [])
    assert CANARY not in str(raised.value)


def test_a_secret_in_the_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "tributary", "login": "u", "password": CANARY}
    monkeypatch.setenv("AIRFLOW_CONN_WITH_SECRET", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="login, password") as raised:
        TributaryHook("with_secret").get_conn()
    assert CANARY not in str(raised.value)


def test_a_working_directory_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "tributary", "extra": {"working_directory": "/none/such"}}
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="no folder on this worker"):
        TributaryHook("elsewhere").run("run")
