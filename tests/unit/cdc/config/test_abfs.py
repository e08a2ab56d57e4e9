from __future__ import annotations

from typing import Any

import pytest

from cdc.config.abfs import settings_problems, url_problem
from tests.unit.cdc.configuration import changed, read, refusal
from tests.unit.cdc.configuration import environment as environment

URL = "abfss://cdc-lake@account1.dfs.core.windows.net/lake"
TYPE = "fs.azure.account.auth.type"
ENDPOINT = "fs.azure.account.oauth2.client.endpoint"


def on_azure(hadoop: dict[str, Any]) -> dict[str, Any]:
    document = changed(("lake", "url"), URL)
    document["lake"]["hadoop"] = hadoop
    return document


@pytest.mark.parametrize(
    "url",
    [
        "abfss:///lake",
        "abfss://account1.dfs.core.windows.net/lake",
        "abfss://container@account1.blob.core.windows.net/lake",
        "abfss://container@account1/lake",
        "abfs://Container@account1.dfs.core.windows.net",
    ],
)
def test_a_url_without_container_and_account_is_refused(url: str) -> None:
    error = refusal(changed(("lake", "url"), url))
    assert error.context["field"] == "lake.url"
    assert "must be abfss://CONTAINER@ACCOUNT.dfs" in error.message


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (TYPE, "oauth2", "must be one of SharedKey, OAuth, Custom, SAS"),
        (f"{TYPE}.account1.dfs.core.windows.net", "Key", "must be one of"),
        (ENDPOINT, "login.microsoftonline.com/t/oauth2/token", "must begin with https://"),
        ("fs.azure.account.key.account1", "${ADMIN_PW}", "names no host of an account"),
    ],
)
def test_a_setting_that_cannot_work_is_named(key: str, value: str, reason: str) -> None:
    ((where, problem),) = settings_problems(URL, {key: value})
    assert where == key
    assert reason in problem
    assert not list(settings_problems("s3a://lake/cdc", {key: value})), "of another store"
    error = refusal(on_azure({key: value}))
    assert key in str(error.context["field"])


def test_settings_that_work_are_accepted() -> None:
    hadoop = {
        f"{TYPE}.account1.dfs.core.windows.net": "OAuth",
        ENDPOINT: "https://login.microsoftonline.com/t/oauth2/token",
        "fs.azure.account.key.other.dfs.core.windows.net": "${ADMIN_PW}",
    }
    config = read(on_azure(hadoop))
    assert config.lake.url == URL
    assert config.lake.store is None, "no jars of ours"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "abfss://container@account1.z01.dfs.storage.azure.net/lake",
        "abfss://MyWorkspace@onelake.dfs.fabric.microsoft.com/My.Lakehouse/Files",
    ],
)
def test_a_url_of_each_of_azures_stores_is_taken(url: str) -> None:
    assert url_problem(url) is None
