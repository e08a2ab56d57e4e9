"""The configuration and exports that the stack writes."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.config import parse
from stack.errors import StackError
from stack.layout import KINDS, PAIRS, SHARED, Record
from stack.local import LocalStack
from stack.mysql_settings import write_option_file
from stack.mysql_software import Installation
from stack.object_store import ACCESS_KEY, BUCKET
from stack.postgres import ROLES, Binaries
from stack.project import Addresses, project_text
from stack.secrets import PGPASS, Passwords, write_private

NAMES = [*(name for kind in KINDS for name in PAIRS[kind]), *SHARED]
PORT = {name: 20000 + number for number, name in enumerate(NAMES)}


def addresses(folder: Path, *kinds: str) -> Addresses:
    folder.mkdir(exist_ok=True)
    passwords = Passwords(folder)
    for role in ROLES:
        passwords.get(role)
    return Addresses(PORT, "shop", passwords, kinds or ("postgres",))


def test_the_written_configuration_is_accepted_and_complete(tmp_path: Path) -> None:
    # A folder name that YAML, URLs and references must all survive.
    folder = tmp_path / 'a "b" #c: é'
    folder.mkdir()
    where = addresses(folder / "secrets")
    config = parse(project_text(where, folder))
    source = config.sources["shop"]
    assert source.primary.port == PORT["primary"]
    assert source.replica is not None
    assert source.replica.port == PORT["replica"]
    assert config.kafka.bootstrap_servers == f"127.0.0.1:{PORT['kafka']}"
    assert config.connect.username == where.connect_login[0]
    assert config.connect.password is not None
    assert config.connect.password.resolve() == where.connect_login[1]
    assert config.lake.url == str(folder / "lake")
    for role in ("admin", "capture", "snapshot", "marker"):
        credential = getattr(source.credentials, role)
        assert credential.user == f"tributary_{role}"
        assert credential.password.resolve() == where.passwords.get(credential.user)


def test_a_stack_with_s3_writes_its_lake_there_and_its_secret_as_a_reference(
    tmp_path: Path,
) -> None:
    where = addresses(tmp_path)
    secret = where.passwords.get(ACCESS_KEY)
    on_s3 = replace(where, ports={**PORT, "s3": 20100})
    text = project_text(on_s3, tmp_path)
    assert secret not in text
    lake = parse(text).lake
    assert lake.url == f"s3a://{BUCKET}/lake"
    assert lake.hadoop == {
        "fs.s3a.endpoint": "http://127.0.0.1:20100",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": ACCESS_KEY,
        "fs.s3a.secret.key": secret,
    }
    assert on_s3.env()["TRIBUTARY_S3_ENDPOINT"] == "http://127.0.0.1:20100"
    assert "TRIBUTARY_S3_ENDPOINT" not in where.env()


def test_each_kind_of_source_is_written_and_accepted(tmp_path: Path) -> None:
    where = addresses(tmp_path, *KINDS)
    sources = parse(project_text(where, tmp_path)).sources
    assert {name: source.kind for name, source in sources.items()} == {
        "shop": "postgres",
        "shop_mysql": "mysql",
        "shop_mariadb": "mariadb",
    }
    for kind in ("mysql", "mariadb"):
        source = sources[f"shop_{kind}"]
        assert source.replica is not None
        assert (source.primary.port, source.replica.port) == (PORT[kind], PORT[f"{kind}_replica"])
        assert source.credentials.capture.user == "tributary_capture"
    only = parse(project_text(addresses(tmp_path, "mariadb"), tmp_path)).sources
    assert list(only) == ["shop_mariadb"]


def test_exports_of_mysql_name_an_option_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    where = addresses(tmp_path, "mysql", "mariadb")
    env = where.env()
    assert "TRIBUTARY_PRIMARY_DSN" not in env
    assert env["TRIBUTARY_MYSQL_PRIMARY"] == f"127.0.0.1:{PORT['mysql']}"
    assert env["TRIBUTARY_MARIADB_REPLICA"] == f"127.0.0.1:{PORT['mariadb_replica']}"
    assert env["TRIBUTARY_MYSQL_OPTION_FILE"] == str(tmp_path / "mysql.cnf")
    file = Path(env["TRIBUTARY_MYSQL_OPTION_FILE"])
    write_option_file("mysql", PORT, where.passwords)
    text = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "[client]" in text
    assert "[client_replica]" in text
    assert where.passwords.get("tributary_snapshot") in text


def test_a_source_and_folder_can_be_named(tmp_path: Path) -> None:
    config = parse(project_text(addresses(tmp_path), tmp_path, "bench"))
    assert list(config.sources) == ["bench"]


def test_exports_name_the_password_file_and_no_password(tmp_path: Path) -> None:
    where = addresses(tmp_path / "with space")
    env = where.env()
    assert env["TRIBUTARY_PRIMARY_DSN"] == (
        f"postgresql://tributary_admin@127.0.0.1:{PORT['primary']}/shop"
        f"?passfile={tmp_path}/with%20space/pgpass"
    )
    assert not any(where.passwords.get(role) in value for role in ROLES for value in env.values())


def test_an_existing_configuration_is_left_alone(tmp_path: Path) -> None:
    Record(PORT, Binaries(Path("/usr/bin"), "15.0")).write(tmp_path)
    stack = LocalStack(tmp_path)
    path = tmp_path / "tributary.yaml"
    assert stack.write_config(path)
    path.write_text("mine")
    assert not stack.write_config(path)
    assert not stack.remove_config(path)
    assert path.read_text() == "mine"


def test_a_configuration_as_written_goes_with_the_stack(tmp_path: Path) -> None:
    Record(PORT, Binaries(Path("/usr/bin"), "15.0")).write(tmp_path)
    stack = LocalStack(tmp_path)
    path = tmp_path / "tributary.yaml"
    stack.write_config(path)
    assert stack.remove_config(path)
    assert not path.exists()
    assert not stack.remove_config(path)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(PORT, Binaries(Path("/opt/pg/bin"), "16.2"))
    record.write(tmp_path)
    assert Record.read(tmp_path) == record


def test_a_record_remembers_what_made_the_data_of_each_kind(tmp_path: Path) -> None:
    installations = {
        "mysql": Installation("mysql", Path("/c/usr/sbin/mysqld"), "9.7.4", Path("/c")),
        "mariadb": Installation("mariadb", Path("/usr/sbin/mariadbd"), "10.11.19"),
    }
    record = Record(PORT, None, installations)
    record.write(tmp_path)
    assert Record.read(tmp_path) == record
    assert record.kinds == ("mysql", "mariadb")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "has format 2; this version reads format 1 only"),
        ({"primary": "/pg"}, "has the key primary, which this version does not know"),
        ({"ports": None}, "lacks the key ports"),
        ({"binaries": {"folder": "/pg"}}, "lacks the key binaries.version"),
    ],
)
def test_a_record_of_another_version_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    Record(PORT, Binaries(Path("/opt/pg/bin"), "16.2")).write(tmp_path)
    changed = json.loads(Record.file(tmp_path).read_text()) | change
    text = json.dumps({key: value for key, value in changed.items() if value is not None})
    Record.file(tmp_path).write_text(text)
    with pytest.raises(StackError) as refused:
        Record.read(tmp_path)
    assert refused.value.message == f"{Record.file(tmp_path)} {reason}"
    assert "remove the stack's folder" in refused.value.remedy


def test_a_folder_without_a_stack_has_no_status_and_can_be_stopped(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "none")
    assert stack.status() == []
    stack.down()
    assert not (tmp_path / "none").exists()


def test_passwords_are_generated_once_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    passwords = Passwords(tmp_path)
    first = passwords.get("capture")
    assert len(first) >= 24
    assert Passwords(tmp_path).get("capture") == first
    assert passwords.get("admin") != first
    assert stat.S_IMODE(passwords.file("capture").stat().st_mode) == 0o600


def test_a_password_file_for_libpq_lists_every_role(tmp_path: Path) -> None:
    passwords = Passwords(tmp_path)
    passwords.write_pgpass(tmp_path / PGPASS, ["a", "b"], host="127.0.0.1")
    assert (tmp_path / PGPASS).read_text() == (
        f"127.0.0.1:*:*:a:{passwords.get('a')}\n127.0.0.1:*:*:b:{passwords.get('b')}\n"
    )
    assert stat.S_IMODE((tmp_path / PGPASS).stat().st_mode) == 0o600


def test_a_private_file_does_not_keep_the_rights_of_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
