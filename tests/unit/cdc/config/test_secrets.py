from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cdc.config.secrets import SecretRef, expand, fold
from cdc.errors import SecretError, SourceError
from schemas.redaction import redact
from schemas.table import TableId


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [("${PW}", "env", "PW"), ("${file:/run/secrets/pw}", "file", "/run/secrets/pw")],
)
def test_a_reference_reads_and_prints_the_same(text: str, kind: str, name: str) -> None:
    reference = SecretRef.parse(text)
    assert (reference.kind, reference.name, str(reference)) == (kind, name, text)


@pytest.mark.parametrize("text", ["hunter2", "", "$PW", "${}", "${1A}", "${file:pw}", "${env:PW}"])
def test_anything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(SecretError) as caught:
        SecretRef.parse(text)
    assert "hunter2" not in repr(caught.value)
    assert "${file:/path}" in caught.value.remedy


def test_a_variable_is_read_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = SecretRef("env", "SOME_PW")
    monkeypatch.delenv("SOME_PW", raising=False)
    with pytest.raises(SecretError, match="SOME_PW is not set"):
        reference.resolve()
    monkeypatch.setenv("SOME_PW", "")
    with pytest.raises(SecretError, match="SOME_PW is not set or is empty"):
        reference.resolve()
    monkeypatch.setenv("SOME_PW", "canary-variable")
    assert reference.resolve() == "canary-variable"
    assert "canary" not in f"{reference!r} {reference} {pickle.dumps(reference)!r}"


def test_a_file_is_read_when_used(tmp_path: Path) -> None:
    file = tmp_path / "pw"
    reference = SecretRef("file", str(file))
    with pytest.raises(SecretError, match="cannot be read: No such file"):
        reference.resolve()
    for written, read in ((" a b \n", " a b "), ("x\r\n", "x"), ("x\n\n", "x\n"), ("x", "x")):
        file.write_bytes(written.encode())
        assert reference.resolve() == read
    file.write_text("\n")
    with pytest.raises(SecretError, match="is empty"):
        reference.resolve()
    file.write_bytes(b"\xff")
    with pytest.raises(SecretError, match="not UTF-8"):
        reference.resolve()


def test_connect_gets_a_reference_of_its_own() -> None:
    assert SecretRef("env", "PW").connect_reference() == "${env:PW}"
    assert (
        SecretRef("file", "/run/secrets/pw").connect_reference() == "${directory:/run/secrets:pw}"
    )


def test_references_inside_text_are_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pw").write_text("from-file\n")
    monkeypatch.setenv("USER_X", "from-env")
    text = f"a://${{USER_X}}:${{file:{tmp_path}/pw}}@h/$${{USER_X}}/$USER_X/${{}}"
    assert expand(text) == "a://from-env:from-file@h/${USER_X}/$USER_X/${}"


def test_a_secret_that_was_read_is_taken_out_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONG_PW", "canary-redact-me")
    monkeypatch.setenv("SHORT_PW", "canary-redact")
    SecretRef("env", "SHORT_PW").resolve()
    SecretRef("env", "LONG_PW").resolve()
    assert redact("url://u:canary-redact-me@h canary-redact") == "url://u:***@h ***"


def test_a_password_that_is_a_word_leaves_remedies_and_names_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the word were removed, the remedy would be useless and its gaps reveal the password."""
    for name, secret in (("A_PW", "tributary"), ("B_PW", "orders"), ("C_PW", "canary-remedy-1")):
        monkeypatch.setenv(name, secret)
        SecretRef("env", name).resolve()
    error = SourceError(
        "the server said: orders canary-remedy-1",
        remedy="Run `tributary bootstrap public.orders`, not canary-remedy-1.",
        table=TableId("shop", "public", "orders"),
        reason="canary-remedy-1",
    )
    again = pickle.loads(pickle.dumps(error))
    for one in (error.to_dict(), again.to_dict()):
        assert one == {
            "error": "SourceError",
            "message": "the server said: *** ***",
            "remedy": "Run `tributary bootstrap public.orders`, not ***.",
            "context": {"table": "shop:public.orders", "reason": "***"},
        }


def test_values_that_are_no_secrets_stay_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_HOST", "plain-host")
    monkeypatch.setenv("TINY_PW", "abc")
    monkeypatch.setenv("S3_KEY", "canary-expanded")
    assert expand("${DB_HOST}") == "plain-host"
    assert SecretRef("env", "TINY_PW").resolve() == "abc"
    assert expand("x${S3_KEY}", secret=True) == "xcanary-expanded"
    assert redact("plain-host abc canary-expanded") == "plain-host abc ***"


def test_a_text_is_folded_back_to_its_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONG", "canary-long")
    monkeypatch.setenv("INNER", "canary")
    monkeypatch.setenv("TINY", "1")
    written = "${LONG} ${INNER} ${TINY} ${NOT_SET_AT_ALL}"
    assert fold("xcanary-longx canary 1", written) == "x${LONG}x ${INNER} 1"
    assert fold("canary-long", "nothing is referred to") == "canary-long"
