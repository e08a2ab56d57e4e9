"""Which MySQL or MariaDB is used, and the error if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.debian import Package, unpacked
from stack.errors import StackError, UnavailableError
from stack.mysql_software import PRODUCTS, Installation, find_installation

MARIADB_TEXT = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64"
MYSQL_TEXT = "/usr/sbin/mysqld  Ver 8.4.2 for Linux on x86_64 (Source distribution)"


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the PATH to the test's folder ``bin``, so that even APT is missing."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("stack.mysql_software._SBIN", ())
    for product in PRODUCTS.values():
        monkeypatch.delenv(product.variable, raising=False)


def program(folder: Path, name: str, text: str, code: int = 0) -> Path:
    """Create a program that prints a text and exits with a code."""
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_one_on_the_path_is_used(tmp_path: Path) -> None:
    server = program(tmp_path, "mysqld", MYSQL_TEXT)
    assert find_installation("mysql", cache=tmp_path) == Installation("mysql", server, "8.4.2")


def test_mariadb_under_mysqls_name_is_mariadb(tmp_path: Path) -> None:
    server = program(tmp_path, "mysqld", MARIADB_TEXT)
    found = find_installation("mariadb", cache=tmp_path)
    assert (found.server, found.version, found.title) == (server, "10.11.19", "MariaDB 10.11.19")
    with pytest.raises(UnavailableError) as error:
        find_installation("mysql", cache=tmp_path)
    assert "TRIBUTARY_MYSQLD" in error.value.remedy
    assert "apt-get" in error.value.message


def test_one_that_is_too_old_is_named(tmp_path: Path) -> None:
    program(tmp_path, "mysqld", MYSQL_TEXT.replace("8.4.2", "5.7.44"))
    with pytest.raises(UnavailableError, match=r"MySQL 8\.0\.23 or later.*5\.7\.44"):
        find_installation("mysql", cache=tmp_path)


def test_the_setting_comes_first_and_must_be_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "mysqld", MYSQL_TEXT)
    named = program(tmp_path, "mine", MYSQL_TEXT.replace("8.4.2", "9.1.0"))
    monkeypatch.setenv("TRIBUTARY_MYSQLD", str(named))
    assert find_installation("mysql", cache=tmp_path).server == named
    for wrong in (program(tmp_path, "other", MARIADB_TEXT), program(tmp_path, "bad", "?", 1)):
        monkeypatch.setenv("TRIBUTARY_MYSQLD", str(wrong))
        with pytest.raises(StackError, match="TRIBUTARY_MYSQLD") as error:
            find_installation("mysql", cache=tmp_path)
        assert not isinstance(error.value, UnavailableError)


def test_an_unpacked_one_runs_with_its_own_loader_and_places(tmp_path: Path) -> None:
    libraries = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    server = tmp_path / "usr" / "sbin" / "mysqld"
    found = Installation("mysql", server, "9.7.4", tmp_path)
    assert found.command == (str(server),)
    assert found.program == "mysqld"
    loader = libraries / "ld-linux-x86-64.so.2"
    loader.touch()
    assert found.command == (str(loader), "--library-path", str(libraries), str(server))
    assert found.program == "ld-linux-x86-64.so.2"
    assert found.places["basedir"] == tmp_path / "usr"


def test_of_unpacked_packages_the_newest_is_taken_and_a_pinned_one_only(tmp_path: Path) -> None:
    for name in ("server_1.9-1", "server_1.10-1", "server_sid_3.0"):
        (tmp_path / "debian" / name).mkdir(parents=True)
    newest = unpacked(Package("server"), cache=tmp_path)
    assert newest is not None
    assert newest.name == "server_1.10-1"
    pinned = Package("server", suite="sid", version="3.0")
    assert unpacked(pinned, cache=tmp_path) == tmp_path / "debian" / "server_sid_3.0"
    assert unpacked(Package("server", suite="sid", version="3.1"), cache=tmp_path) is None
