"""Which secret files have changed after a process has read them."""

from __future__ import annotations

from pathlib import Path

import yaml

from cdc.config import parse
from cdc.config.secret_files import SecretFiles, files_of
from tests.unit.cdc.configuration import minimal


def test_a_file_that_changed_is_found_and_one_that_is_away_is_not(tmp_path: Path) -> None:
    rotated, away = tmp_path / "rotated", tmp_path / "away"
    rotated.write_text("one")
    away.write_text("two")
    files = SecretFiles([rotated, away])
    files.look()
    assert files.changed == ()

    rotated.write_text("three")
    away.unlink()
    assert files.changed == (), "no one has looked"
    files.look()
    assert files.changed == (str(rotated),)


def test_passwords_certificates_and_references_in_urls_are_files(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----")
    document = minimal()
    document["connect"] |= {"url": "https://c", "username": "u", "password": "${file:/s/connect}"}
    document["connect"]["ca_file"] = str(ca)
    document["kafka"]["registry"] |= {"username": "u", "password": "${file:/s/registry}"}
    document["state"] = {"url": "${file:/s/state}"}
    config = parse(yaml.safe_dump(document), base=tmp_path)
    assert files_of(config.kafka, config.connect, config.state) == [
        Path("/s/connect"),
        Path("/s/registry"),
        Path("/s/state"),
        ca,
    ]
