"""The digest by which a process sees that other settings than its own made a table's rows."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.config import LakeConfig, TableSettings
from cdc.rows.masking import key_check
from cdc.run.comparison import settings_digest, settings_digests


def digest(**settings: Any) -> str:
    lake = LakeConfig.model_validate({"url": "file:///lake", "hash_key": "${KEY_OF_TEST}"})
    return settings_digest(TableSettings.model_validate(settings), lake)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_TEST", "canary-one")


@pytest.mark.parametrize(
    "settings",
    [
        {"columns": {"include": ["a"]}},
        {"columns": {"exclude": ["a"]}},
        {"columns": {"as": {"a": "string"}}},
        {"columns": {"as": {"a": "decimal(10,2)"}}},
        {"columns": {"hash": ["a"]}},
        {"columns": {"mask": ["a"]}},
        {"key_columns": ["a"]},
        {"mode": "append"},
        {"partition_by": ["a"]},
        {"partition_by": ["day(a)"]},
        {"delete_mode": "soft"},
        {"timestamps_without_zone": "timestamp"},
    ],
)
def test_what_rows_are_made_by_counts(settings: dict[str, Any]) -> None:
    assert digest(**settings) == digest(**settings) != digest()


def test_the_order_of_names_does_not_count() -> None:
    one = digest(columns={"exclude": ["a", "b"], "mask": ["c", "d"]})
    assert digest(columns={"exclude": ["b", "a", "b"], "mask": ["d", "c"]}) == one
    assert digest(key_columns=["a", "b"]) != digest(key_columns=["b", "a"])


def test_names_to_come_do_not() -> None:
    """An entry for a future rename does not concern a copy, so the copy goes on."""
    assert digest(columns={"renames": {"b": "a"}}) == digest()


@pytest.mark.parametrize(
    "settings",
    [
        {"on_truncate": "ignore"},
        {"on_bad_message": "quarantine"},
        {"on_schema_change": "freeze"},
        {"on_incompatible": "resync"},
        {"readers_keep": "3h"},
        {"columns": {"renames": {"b": "a"}}},
    ],
)
def test_what_later_events_do_is_a_policy(settings: dict[str, Any]) -> None:
    lake = LakeConfig(url="file:///lake")
    plain = settings_digests(TableSettings(), lake)
    edited = settings_digests(TableSettings.model_validate(settings), lake)
    assert edited.settings_digest == plain.settings_digest == settings_digest(TableSettings(), lake)
    assert edited.policies_digest != plain.policies_digest


def test_what_only_says_when_and_how_much_does_not() -> None:
    assert digest(chunk_rows=7, freshness_target_s=60, tier="hot", max_events_per_run=9) == digest()
    lake, later = LakeConfig(url="file:///lake"), TableSettings(chunk_rows=7, tier="hot")
    assert settings_digests(later, lake) == settings_digests(TableSettings(), lake)


def test_another_key_of_hashes_counts_where_there_are_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed, masked = digest(columns={"hash": ["a"]}), digest(columns={"mask": ["a"]})
    monkeypatch.setenv("KEY_OF_TEST", "canary-two")
    assert digest(columns={"hash": ["a"]}) != hashed
    assert digest(columns={"mask": ["a"]}) == masked


def test_the_check_of_a_key_gives_none_of_it_away() -> None:
    lake = LakeConfig.model_validate({"url": "file:///lake", "hash_key": "${KEY_OF_TEST}"})
    check = key_check(lake)
    assert check is not None
    assert len(check) == 16
    assert "canary" not in check
    assert key_check(LakeConfig(url="file:///lake")) is None
