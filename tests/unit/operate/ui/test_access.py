"""Who may see the page, and the restrictions that each answer imposes on a browser."""

from __future__ import annotations

import base64

import pytest

from cdc.errors import ConfigError, SecretError
from operate.ui.access import HEADERS, Guarded, is_allowed, is_loopback, knows_host, token_of
from tests.viewer import Viewer

TOKEN = "a-token-of-24-characters"


async def page(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"page"})


@pytest.fixture
def viewer() -> Viewer:
    return Viewer(Guarded(page, token=TOKEN))


def basic(password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"}


def test_the_token_is_a_password_or_a_bearer(viewer: Viewer) -> None:
    assert viewer.get("/").status_code == 401
    assert viewer.get("/").headers["www-authenticate"].startswith("Basic realm=")
    assert viewer.get("/", headers=basic("another")).status_code == 401
    assert viewer.get("/", headers=basic(TOKEN)).text == "page"
    assert viewer.get("/", headers={"authorization": f"Bearer {TOKEN}"}).text == "page"


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic %%%", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x"]
)
def test_another_header_is_no_token(header: str) -> None:
    assert not is_allowed(header, TOKEN)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_allowed(viewer: Viewer, method: str) -> None:
    answer = viewer.request(method, "/", headers=basic(TOKEN))
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:9466", True),
        ("localhost", True),
        ("[::1]:9466", True),
        ("10.1.2.3", True),
        ("cdc.example.com:443", True),
        ("CDC.example.com.", True),
        ("evil.example.com", False),
        ("127.0.0.1.evil.example.com", False),
        ("localhost.evil.example.com:9466", False),
        ("", False),
    ],
)
def test_a_name_that_points_here_by_itself_is_refused(host: str, known: bool) -> None:
    assert knows_host(host, ["cdc.example.com"]) is known
    guarded = Guarded(page, names=["cdc.example.com"])
    answer = Viewer(guarded).get("/", headers={"host": host})
    assert answer.status_code == (200 if known else 421)


def test_each_answer_forbids_inline_scripts_and_other_sites(viewer: Viewer) -> None:
    for answer in (viewer.get("/"), viewer.get("/", headers=basic(TOKEN))):
        assert HEADERS.items() <= dict(answer.headers).items()
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "cdc.example.com"])
def test_other_machines_need_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no token protects the page"):
        token_of(host, None)
    monkeypatch.setenv("UI_TOKEN", TOKEN)
    assert token_of(host, "${UI_TOKEN}") == TOKEN
    monkeypatch.setenv("UI_TOKEN", "short")
    with pytest.raises(ConfigError, match="fewer than 16 characters"):
        token_of(host, "${UI_TOKEN}")


def test_a_token_in_plain_text_is_refused_and_not_repeated() -> None:
    with pytest.raises(SecretError) as caught:
        token_of("127.0.0.1", TOKEN)
    assert TOKEN not in str(caught.value)


def test_this_machine_needs_none() -> None:
    assert token_of("127.0.0.1", None) is None
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example.com")
