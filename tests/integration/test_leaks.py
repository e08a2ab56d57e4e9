"""Secrets are planted in every place of the configuration that takes one; none may leak."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from stack.ports import HOST
from stack.roles import ADMIN, CONNECT, PURPOSES
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.project import Project, Ran
from tests.integration.rigs.servers import watched_command_lines

PLANTED = {
    name: f"canary/{name.lower()}+{number}"
    for number, name in enumerate(("LAKE_SECRET", "HASH_KEY", "REGISTRY_PW", "WRONG_PW"))
}


def with_secrets(project: Project, state: str) -> None:
    """Plant a secret in every place of the configuration that takes one and needs no server."""
    file = project.folder / "tributary.yaml"
    config = yaml.safe_load(file.read_text())
    config["state"] = {"url": state}
    config["lake"] |= {
        "hadoop": {"fs.s3a.secret.key": "${LAKE_SECRET}"},
        "hash_key": "${HASH_KEY}",
    }
    config["kafka"]["registry"] |= {"username": "u", "password": "${REGISTRY_PW}"}
    config["defaults"] = {"columns": {"hash": ["t"]}}
    file.write_text(yaml.safe_dump(config))


def state_rows(database: Database) -> str:
    """Every row of every table of the store, as text."""
    with database.connect() as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'orders'"
        ).fetchall()
        assert len(names) > 5, "this is not the store"
        rows = [
            connection.execute(f'SELECT t::text FROM "{name}" t').fetchall() for (name,) in names
        ]
    return repr(rows)


@pytest.mark.breadth
def test_no_secret_turns_up_anywhere(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = database.stack.passwords
    logins = (*PURPOSES.values(), CONNECT)
    secrets = {role: passwords.get(role) for role in logins} | PLANTED
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    # A parameter of a URL is percent-encoded, and so is what stands for it.
    monkeypatch.setenv("STATE_PW", quote(passwords.get(ADMIN), safe=""))
    port = database.stack.addresses().ports["primary"]
    project = Project.create(tmp_path, database)
    login = f"postgresql+psycopg://{ADMIN}@{HOST}"
    with_secrets(project, f"{login}:{port}/{database.name}?password=${{STATE_PW}}")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, t text)")
    database.load("orders", [(1, "a"), (2, "b")])

    told: list[Ran] = []
    with watched_command_lines() as lines:
        for arguments in (
            ("check", "-vv"),
            ("onboard", "public.orders", "--dry-run", "-vv"),
            ("onboard", "public.orders", "-vv"),
            ("run", "-vv", "--output", "json"),
            ("status", "-vv", "--output", "json"),
        ):
            told.append(project.run(*arguments).expect(0))
    with_secrets(project, f"{login}:{port}/{database.name}?password=${{WRONG_PW}}")
    told.append(project.run("status", "-vv").expect(1))
    with_secrets(project, f"{login}:1/{database.name}?password=${{STATE_PW}}")
    told += [project.run(command, "-vv").expect(1) for command in ("status", "check")]

    assert f"{login}:{port}/{database.name}, " in told[0].stdout
    assert "password authentication failed" in told[-3].stderr
    assert any("spark.sql.extensions" in line for line in lines), "the JVM was not seen"
    files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert any(path.name == "hoodie.properties" for path in files)
    places = {
        **{" ".join(ran.arguments): ran.stdout + ran.stderr for ran in told},
        "command lines": "\n".join(lines),
        "state store": state_rows(database),
        **{str(path): path.read_bytes().decode("latin-1") for path in files},
    }
    for role, secret in secrets.items():
        for form in (secret, quote(secret, safe="")):
            found = [place for place, text in places.items() if form in text]
            assert not found, f"the secret {role} is in {found}"
