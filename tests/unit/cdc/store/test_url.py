"""The URL of a state store: no message about it has a secret, in whichever part the secret is."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from cdc.errors import StateError
from cdc.store.state_store import Store
from schemas.errors import TributaryError
from schemas.redaction import keep_secret, redact

NOBODY = "127.0.0.1:1"
"""A port where nothing listens."""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://u@{}/d?password=canary%2Fpw", "postgresql+psycopg://u@{}/d"),
        ("postgresql://u:canary%2Fpw@{}/d", "postgresql+psycopg://u:***@{}/d"),
        ("postgresql://{}/d?sslpassword=canary%2Fpw", "postgresql+psycopg://{}/d"),
        (
            "postgresql://{}/d?host=/run/db&passfile=canary%2Fpw",
            "postgresql+psycopg://{}/d?host=/run/db",
        ),
        ("mysql+pymysql://u@{}/d?password=canary%2Fpw", "mysql+pymysql://u@{}/d"),
        ("mysql+pymysql://u:canary%2Fpw@{}/d?charset=utf8mb4", "mysql+pymysql://u:***@{}/d"),
        ("mysql+pymysql://u@{}/d?ssl_key_password=canary%2Fpw", "mysql+pymysql://u@{}/d"),
        # No driver knows these: what they say of them is not ours.
        ("postgresql://u@{}/d?pasword=canary%2Fpw", "postgresql+psycopg://u@{}/d"),
        ("mysql+pymysql://u@{}/d?pasword=canary%2Fpw", "mysql+pymysql://u@{}/d"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named_without_its_secrets(url: str, shown: str) -> None:
    with pytest.raises(StateError) as caught:
        Store(url.format(NOBODY))
    said = f"{caught.value!r} {caught.value.to_dict()} {caught.value.__cause__}"
    assert "canary" not in said
    assert f"{shown.format(NOBODY)} is not usable" in said


def test_what_a_driver_says_is_told_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    def talkative(*_arguments: Any, **more: Any) -> Any:
        raise psycopg.OperationalError(f"cannot connect by password={more['password']}")

    monkeypatch.setattr(psycopg.Connection, "connect", talkative)
    for url in ("postgresql://u:canary%2Fpw@h/d", "postgresql://u@h/d?password=canary%2Fpw"):
        with pytest.raises(StateError, match=r"is not usable: .*password=\*\*\*") as caught:
            Store(url)
        assert "canary" not in str(caught.value)


def test_no_error_of_ours_repeats_a_secret_in_any_of_its_forms() -> None:
    secret = """ca"n/a'ry pw\\é"""
    keep_secret(secret)
    forms = (secret, "ca%22n%2Fa%27ry%20pw%5C%C3%A9", "ca%22n%2Fa%27ry+pw%5C%C3%A9")
    forms += (repr(secret), '"ca\\"n/a\'ry pw\\\\\\u00e9"', "ca\\\"n/a'ry pw\\\\é")
    for form in forms:
        error = TributaryError(f"it said: {form}.", remedy=f"Not {form}.", seen=form)
        said = f"{error!r} {error.to_dict()} {redact(form)}"
        assert "n/a" not in said, form
        assert "n%2Fa" not in said, form
