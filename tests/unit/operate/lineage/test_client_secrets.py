"""No setting of OpenLineage's client reveals a secret, even if the setting is wrong."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cdc.runtime.waiting import wait_while
from operate.cli import app
from operate.context import Services
from operate.exit_codes import ExitCode
from tests.integration.rigs.lineage_receiver import receiving
from tests.unit.operate.lineage.conftest import to_file
from tests.unit.operate.lineage.recorded_runs import run

CANARY = "canary-of-the-client"


def test_no_secret_of_the_client_is_in_a_message_or_a_log(
    services: Services, tmp_path: Path
) -> None:
    """The client's own message about a refusal has the receiver's URL, including the login."""
    services.store.record_run(run())
    with receiving() as received:
        received.refuses = True
        transport = {
            "type": "http",
            "url": received.url.replace("://", f"://someone:pass-{CANARY}@"),
            "auth": {"type": "api_key", "apiKey": f"key-{CANARY}"},
        }
        for settings in (transport, {"type": "composite", "transports": [transport]}):
            (tmp_path / "openlineage.yml").write_text(yaml.safe_dump({"transport": settings}))
            found = CliRunner().invoke(app, ["lineage", "-vv"])
            assert found.exit_code == ExitCode.ERROR
            assert "401 Client Error" in found.output
            assert CANARY not in found.output


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"OPENLINEAGE__TRANSPORT__AUTH__APIKEY": f"[{CANARY}"}, ""),
        ({"OPENLINEAGE__TRANSPORT": f'{{"type": "http", "auth": {{"apiKey": "{CANARY}",}}}}'}, ""),
        ({"OPENLINEAGE_URL": f"someone:{CANARY}@marquez:5000"}, ""),
        ({"OPENLINEAGE_URL": f"http://someone:ab/{CANARY}==@marquez:5000"}, ""),
        ({"OPENLINEAGE_URL": f"http://someone:p@{CANARY}@127.0.0.1:1"}, ""),
        ({"OPENLINEAGE__TRANSPORT": json.dumps({"type": "http", "url": f"u:{CANARY}@m:1"})}, ""),
        ({}, f"transport:\n  type: http\n  auth: {{apiKey: {CANARY}\n"),
        ({}, f"transport: {{type: http, url: 'someone:{CANARY}@marquez:5000'}}\n"),
    ],
    ids=[
        "a bracket",
        "a comma",
        "no scheme",
        "a slash",
        "an at sign",
        "no scheme in JSON",
        "not YAML",
        "no scheme in YAML",
    ],
)
def test_settings_that_the_client_cannot_use_reveal_no_secret(
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    file: str,
) -> None:
    """The client itself puts values that it cannot use into its logs and errors."""
    services.store.record_run(run())
    (tmp_path / "openlineage.yml").write_text(file)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = CliRunner().invoke(app, ["lineage", "-vv"])
    assert found.exit_code != 0
    assert CANARY not in found.output
    assert CANARY not in str(found.exception)


def test_a_url_alone_names_the_receiver(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.store.record_run(run())
    (tmp_path / "openlineage.yml").unlink()
    with receiving() as received:
        monkeypatch.setenv("OPENLINEAGE_URL", received.url)
        assert CliRunner().invoke(app, ["lineage"]).exit_code == ExitCode.OK
        assert len(received.events) == 2


def test_settings_without_a_kind_of_transport_name_no_receiver(
    services: Services, tmp_path: Path
) -> None:
    """Without a type, the client would print the events, and they would count as sent."""
    services.store.record_run(run())
    (tmp_path / "openlineage.yml").write_text("transport: {auth: {type: api_key}}\n")
    found = CliRunner().invoke(app, ["lineage"])
    assert found.exit_code == ExitCode.ERROR
    assert "no receiver of lineage events is configured" in found.output


def test_no_thread_of_a_transport_stays_after_a_failure(services: Services, tmp_path: Path) -> None:
    services.store.record_run(run())
    transport = {"type": "async_http", "url": "http://127.0.0.1:1", "retry": {"total": 0}}
    (tmp_path / "openlineage.yml").write_text(yaml.safe_dump({"transport": transport}))
    before = threading.active_count()
    for _ in range(3):
        assert CliRunner().invoke(app, ["lineage"]).exit_code == ExitCode.ERROR
    wait_while(lambda: threading.active_count() > before, timeout_s=20.0, poll_s=0.1)
    assert threading.active_count() <= before


def test_a_file_that_is_not_yaml_is_corrected(services: Services, tmp_path: Path) -> None:
    services.store.record_run(run())
    file = tmp_path / "openlineage.yml"
    file.write_text("transport:\n  type: [file\n  append: true\n")
    found = CliRunner().invoke(app, ["lineage"])
    assert found.exit_code == ExitCode.ERROR
    assert f"{file}, line 3 is not valid YAML" in found.output.replace("\n", " ")
    to_file(file, tmp_path / "events")
    assert CliRunner().invoke(app, ["lineage"]).exit_code == ExitCode.OK
    assert len((tmp_path / "events").read_text().splitlines()) == 2
