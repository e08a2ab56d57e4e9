"""How the stack's metastore and Trino reach a lake on the stack's S3-compatible server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.runtime.java import JavaInstallation
from stack import metastore
from stack.artifacts import Software
from stack.layout import METASTORE, S3, SECRETS, TRINO, Record, layout
from stack.object_store import ACCESS_KEY
from stack.secrets import Passwords, private_folder
from stack.trino_software import TrinoSoftware

PORTS = {"kafka": 1, "kafka_controller": 2, "registry": 3, "connect": 4, METASTORE: 5, TRINO: 6}


def test_a_metastore_and_trino_reach_the_lake_of_their_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars of s3"
    monkeypatch.setattr(metastore, "fetch", lambda *_: jars)
    java = JavaInstallation(tmp_path, "17.0.1")
    software = Software(java, tmp_path, {}, tmp_path, tmp_path)
    found = layout(
        tmp_path,
        Record({**PORTS, S3: 7}),
        lambda: software,
        lambda: TrinoSoftware(java, tmp_path / "server"),
    )
    private_folder(tmp_path / SECRETS)
    secret = Passwords(tmp_path / SECRETS).get(ACCESS_KEY)
    assert found.metastore is not None
    assert found.trino is not None
    for server in (found.metastore, found.trino):
        server.prepare()
        assert secret not in " ".join(server.command().argv)
    assert f"{jars}/*" in " ".join(found.metastore.command().argv)
    for file, settings in (
        (tmp_path / METASTORE / "hive-site.xml", ("<value>http://127.0.0.1:7</value>",)),
        (
            tmp_path / TRINO / "catalog" / "hudi.properties",
            ("fs.native-s3.enabled=true", "s3.endpoint=http://127.0.0.1:7", "s3.region="),
        ),
    ):
        text = file.read_text("utf-8")
        assert not [one for one in (*settings, ACCESS_KEY, secret) if one not in text]
        assert file.stat().st_mode & 0o077 == 0


def test_a_stack_without_s3_gives_them_no_store(tmp_path: Path) -> None:
    java = JavaInstallation(tmp_path, "17.0.1")
    software = Software(java, tmp_path, {}, tmp_path, tmp_path)
    trino = TrinoSoftware(java, tmp_path / "server")
    found = layout(tmp_path, Record(PORTS), lambda: software, lambda: trino)
    assert found.metastore is not None
    assert found.trino is not None
    for server in (found.metastore, found.trino):
        server.prepare()
        server.command()
    written = [path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [text for text in written if "fs.s3a." in text or "fs.native-s3" in text]
