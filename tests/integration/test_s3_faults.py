"""Lakes on an S3 store that throttles, revokes rights or fails amid a commit, or that uses TLS."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cdc.runtime.java import find_java
from tests.integration.rigs.certificates import make_certificates
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project
from tests.integration.rigs.s3 import CANARY, S3
from tests.integration.rigs.s3 import s3 as s3
from tests.integration.rigs.s3_gate import AWAY, BUSY, FORBIDDEN, Gate, Refusal, Request, gate

ORDERS = "public.orders"
BOUND_S = 600.0
"""Limit for a run, in seconds, if the store refuses requests: S3A repeats each for 30 to 45 s, and
a failing commit makes several requests."""
pytestmark = pytest.mark.breadth


@pytest.fixture
def project(database: Database, s3: S3, tmp_path: Path) -> Project:
    made = Project.create(tmp_path, database)
    s3.move(made)
    made.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    )
    return made


def set_hadoop(project: Project, settings: dict[str, str], **spark_conf: str) -> None:
    document = yaml.safe_load(project.file.read_text())
    document["lake"]["hadoop"] |= settings
    document["spark"]["conf"] = spark_conf
    project.file.write_text(yaml.safe_dump(document))


@pytest.fixture
def before(project: Project, s3: S3) -> Iterator[Gate]:
    """A gate in front of the store, which the project's lake uses."""
    with gate(s3.store.port) as opened:
        set_hadoop(project, {"fs.s3a.endpoint": opened.endpoint})
        yield opened


def change(project: Project, value: int) -> None:
    project.execute(
        f"UPDATE orders SET v = {value} WHERE id % 50 = 0",
        f"DELETE FROM orders WHERE id = {value}",
    )


def assert_equal(project: Project, rows: int) -> None:
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert f'"rows_compared": {rows}' in verified.stdout, verified.stdout


def test_a_store_that_throttles_now_and_then_delays_a_run_only(
    project: Project, before: Gate
) -> None:
    project.run("onboard", ORDERS).expect(0)
    change(project, 1)
    seen = iter(range(1_000_000))

    def each_fourth(_request: Request) -> Refusal | None:
        return BUSY if next(seen) % 4 == 0 else None

    with before.refusing(each_fourth):
        project.run("run").expect(0)
    assert before.refused > 20
    assert_equal(project, 499)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (BUSY, "The store is busy"),
        (FORBIDDEN, "Allow s3:ListBucket"),
        (AWAY, "The store does not answer"),
    ],
)
def test_a_store_that_refuses_amid_a_commit_stops_the_table_by_name_and_loses_nothing(
    project: Project, before: Gate, refusal: Refusal, remedy: str
) -> None:
    project.run("onboard", ORDERS).expect(0)
    change(project, 1)
    with before.from_first_rows_on(refusal):
        started = time.monotonic()
        ran = project.run("run").expect(1, 3)
        assert time.monotonic() - started < BOUND_S
    text = " ".join((ran.stdout + ran.stderr).split())
    assert ORDERS in text
    assert remedy in text, text
    change(project, 2)
    project.run("retry", ORDERS)
    project.run("run").expect(0)
    assert_equal(project, 498)


def test_keys_of_the_environment_sign_each_request(
    project: Project, before: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(project.file.read_text())
    for name in ("access", "secret"):
        del document["lake"]["hadoop"][f"fs.s3a.{name}.key"]
    project.file.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    project.run("onboard", ORDERS).expect(0)
    change(project, 1)
    project.run("run").expect(0)
    assert_equal(project, 499)
    signed = [one.headers.get("authorization", "none") for one in before.requests]
    assert signed
    assert all("Credential=of-the-environment/" in one for one in signed), set(signed)


def test_tls_encryption_and_temporary_credentials_reach_the_store(
    project: Project, s3: S3, tmp_path: Path
) -> None:
    certificates, trusted = tmp_path / "tls", tmp_path / "trusted.jks"
    certificates.mkdir()
    make_certificates(certificates)
    with gate(s3.store.port, certificates) as opened:
        credentials = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        settings = {
            "fs.s3a.endpoint": opened.endpoint,
            "fs.s3a.encryption.algorithm": "AES256",
            "fs.s3a.aws.credentials.provider": credentials,
            "fs.s3a.session.token": f"${{file:{project.folder / 's3.secret'}}}",
        }
        set_hadoop(project, settings)
        ran = project.run("check").expect(1)
        assert "Java's trust store" in " ".join((ran.stdout + ran.stderr).split())

        keytool = find_java().home / "bin" / "keytool"
        subprocess.run(
            [
                *(keytool, "-importcert", "-noprompt", "-alias", "ca", "-storetype", "JKS"),
                *("-file", certificates / "ca.pem", "-keystore", trusted, "-storepass", "changeit"),
            ],
            check=True,
            capture_output=True,
        )
        option = f"-Djavax.net.ssl.trustStore={trusted}"
        set_hadoop(project, {}, **{"spark.driver.extraJavaOptions": option})
        project.run("onboard", ORDERS).expect(0)
        change(project, 1)
        project.run("run").expect(0)
        assert_equal(project, 499)
        rows = [one for one in opened.requests if one.writes_rows]
    assert rows
    assert {one.headers.get("x-amz-server-side-encryption") for one in rows} == {"AES256"}
    assert all("x-amz-security-token" in one.headers for one in opened.requests)
