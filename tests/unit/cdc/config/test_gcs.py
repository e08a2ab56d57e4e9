from __future__ import annotations

from typing import Any

import pytest

from cdc.config.gcs import settings_problems
from tests.unit.cdc.configuration import changed, read, refusal
from tests.unit.cdc.configuration import environment as environment

URL = "gs://my_lake.example/cdc"
KEY_FILE = "fs.gs.auth.service.account.json.keyfile"


def on_gcs(hadoop: dict[str, Any]) -> dict[str, Any]:
    document = changed(("lake", "url"), URL)
    document["lake"]["hadoop"] = hadoop
    return document


@pytest.mark.parametrize("url", ["gs:///cdc", "gs://Lake/cdc", "gs://-lake", "gs://lake_"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    error = refusal(changed(("lake", "url"), url))
    assert error.context["field"] == "lake.url"
    assert "needs the name of a bucket after gs://" in error.message


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("fs.gs.auth.type", "UNAUTHENTICATED", "is of version 3 of Google's connector"),
        ("fs.gs.auth.service.account.enable", "yes", "must be true or false"),
        ("fs.gs.auth.null.enable", "on", "must be true or false"),
        (KEY_FILE, "secrets/gcs.json", "must be an absolute path"),
        ("fs.gs.storage.root.url", "localhost:4443", "must be http://host:port"),
        ("fs.gs.storage.root.url", "http://localhost/storage", "without a path"),
    ],
)
def test_a_setting_that_cannot_work_is_named(key: str, value: str, reason: str) -> None:
    ((where, problem),) = settings_problems(URL, {key: value})
    assert where == key
    assert reason in problem
    assert not list(settings_problems("s3a://lake/cdc", {key: value})), "of another store"
    error = refusal(on_gcs({key: value}))
    assert key in str(error.context["field"])


def test_settings_that_work_are_accepted() -> None:
    hadoop = {
        "fs.gs.auth.service.account.enable": True,
        KEY_FILE: "/run/secrets/gcs.json",
        "fs.gs.storage.root.url": "https://storage.example.com:4443/",
    }
    assert read(on_gcs(hadoop)).lake.hadoop[KEY_FILE] == "/run/secrets/gcs.json"
