from __future__ import annotations

import pytest

from cdc.config.s3 import settings_problems
from tests.unit.cdc.configuration import changed, read, refusal
from tests.unit.cdc.configuration import environment as environment

URL = "s3a://lake.example/cdc"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://lake/cdc", "write s3a:// instead of s3://"),
        ("s3n://lake/cdc", "write s3a:// instead of s3n://"),
        ("S3://lake", "write s3a:// instead of S3://"),
        ("s3a://my_lake/cdc", "needs the name of a bucket"),
        ("s3a:///cdc", "needs the name of a bucket"),
        ("s3a://-lake", "needs the name of a bucket"),
    ],
)
def test_a_url_that_hadoop_cannot_use_is_refused_with_what_to_write(url: str, reason: str) -> None:
    error = refusal(changed(("lake", "url"), url))
    assert error.context["field"] == "lake.url"
    assert reason in error.message


@pytest.mark.parametrize(
    ("url", "store"),
    [(URL, "s3"), ("s3a://lake", "s3"), ("/lake", None), ("gs://lake/a_b", "gcs")],
)
def test_which_store_a_lake_is_on(url: str, store: str | None) -> None:
    assert read(changed(("lake", "url"), url)).lake.store == store


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"endpoint": "http://host/path"}, "endpoint", "without a path"),
        ({"endpoint": "ftp://host"}, "endpoint", "must be a host"),
        ({"path.style.access": "yes"}, "path.style.access", "true or false"),
        ({"connection.ssl.enabled": "off"}, "connection.ssl.enabled", "true or false"),
        ({"encryption.algorithm": "SSE-S3"}, "encryption.algorithm", "must be one of AES256"),
        (
            {"encryption.algorithm": "AES256", "encryption.key": "a"},
            "encryption.key",
            "is not used with AES256",
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["fs.s3a.", "fs.s3a.bucket.lake.example."])
def test_a_setting_that_cannot_work_is_named(
    settings: dict[str, str], key: str, reason: str, prefix: str
) -> None:
    given = {f"{prefix}{name}": value for name, value in settings.items()}
    ((where, problem),) = settings_problems(URL, given)
    assert where == f"{prefix}{key}"
    assert reason in problem


@pytest.mark.parametrize(
    "settings",
    [
        {"endpoint": "http://127.0.0.1:9000", "path.style.access": "true"},
        {"endpoint": "s3.eu-central-1.amazonaws.com"},
        {"endpoint": "https://store.example:9000/"},
        {"endpoint": "http://[::1]:9000"},
        {"secret.key": "b"},
        {"bucket.lake.example.access.key": "a", "secret.key": "b"},
        {"bucket.other.path.style.access": "yes"},
        {"encryption.algorithm": "SSE-KMS"},
        {"server-side-encryption-algorithm": "SSE-C", "server-side-encryption.key": "a"},
    ],
)
def test_what_s3a_takes_is_not_refused(settings: dict[str, str]) -> None:
    given = {f"fs.s3a.{name}": value for name, value in settings.items()}
    assert list(settings_problems(URL, given)) == []


def test_settings_of_the_former_file_systems_are_refused_by_name() -> None:
    error = refusal(changed(("lake", "hadoop"), {"fs.s3n.awsAccessKeyId": "a"}))
    assert error.context["field"] == 'lake.hadoop."fs.s3n.awsAccessKeyId"'
    assert "write fs.s3a. settings" in error.message


def test_settings_of_s3_beside_another_lake_are_not_judged() -> None:
    assert list(settings_problems("/lake", {"fs.s3a.access.key": "a"})) == []
