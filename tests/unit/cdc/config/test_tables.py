"""Which settings a table gets, and where its names and paths come from."""

from __future__ import annotations

import copy

import pytest

from cdc.config.patterns import Pattern
from cdc.config.tables import TableSettings, configured_tier, is_append_tier
from cdc.errors import ConfigError
from schemas.errors import InvalidIdentifierError
from schemas.table import TableId
from tests.unit.cdc.configuration import changed, full, minimal, read, refusal
from tests.unit.cdc.configuration import environment as environment


def test_the_more_specific_pattern_wins_key_by_key() -> None:
    document = minimal()
    document["sources"]["crm"] = document["sources"]["shop"]
    document["defaults"] = {"chunk_rows": 1, "hudi": {"a": 1, "b": 1}}
    document["tables"] = {
        "shop:public.orders": {"buckets": 8},
        "public.orders": {"chunk_rows": 5, "hudi": {"b": 5}},
        "*.orders": {"chunk_rows": 4},
        "public.*": {"chunk_rows": 3, "tier": "bulk"},
        "*": {"chunk_rows": 2, "freshness_target_s": 60},
    }
    config = read(document)
    settings = config.table_settings(TableId("shop", "public", "orders"))
    assert settings.buckets == 8
    assert settings.chunk_rows == 5
    assert settings.hudi == {"a": "1", "b": "5"}
    assert settings.tier == "bulk"
    assert settings.freshness_target_s == 60
    assert config.table_settings(TableId("crm", "public", "orders")).buckets is None
    assert config.table_settings(TableId("crm", "sales", "orders")).chunk_rows == 4
    assert config.table_settings(TableId("crm", "public", "other")).chunk_rows == 3
    assert config.table_settings(TableId("crm", "a", "b")).chunk_rows == 2


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("*", "shop:*.*"),
        ("shop:*.*", "public.*"),
        ("shop:public.*", "*.orders"),
        ("*.orders", "public.orders"),
        ("public.orders", "shop:public.orders"),
        ("public.o*", "public.ord*"),
        ("public.ord*", "*.orders"),
    ],
)
def test_what_counts_as_more_specific(general: str, specific: str) -> None:
    for first, second in ((general, specific), (specific, general)):
        document = minimal()
        document["tables"] = {first: {}, second: {}}
        document["tables"][general] = {"chunk_rows": 1}
        document["tables"][specific] = {"chunk_rows": 2}
        assert read(document).table_settings(TableId("shop", "public", "orders")).chunk_rows == 2


def test_among_equally_specific_patterns_the_later_wins() -> None:
    document = minimal()
    document["tables"] = {"public.a*": {"chunk_rows": 1}, "public.*z": {"chunk_rows": 2}}
    assert read(document).table_settings(TableId("shop", "public", "az")).chunk_rows == 2


def test_patterns_that_clash_only_for_one_table_are_refused_there() -> None:
    document = minimal()
    document["tables"] = {"public.*": {"index": "bloom"}, "*.orders": {"buckets": 4}}
    config = read(document)
    with pytest.raises(ConfigError, match=r"shop:public\.orders: buckets: index bloom has no"):
        config.table_settings(TableId("shop", "public", "orders"))


def test_patterns_match_quoted_names() -> None:
    pattern = Pattern.parse('shop:"My Schema"."t.1"')
    assert pattern.matches(TableId("shop", "My Schema", "t.1"))
    assert not pattern.matches(TableId("shop", "My Schema", "t"))


def test_table_names_take_the_only_source() -> None:
    config = read(minimal())
    assert config.table_id("public.orders") == TableId("shop", "public", "orders")
    with pytest.raises(ConfigError, match="source crm is not configured; the sources are shop"):
        config.table_id("crm:public.orders")
    document = minimal()
    document["sources"]["crm"] = document["sources"]["shop"]
    with pytest.raises(InvalidIdentifierError, match="there is more than one"):
        read(document).table_id("public.orders")


def test_capture_names_are_kept_apart() -> None:
    document = minimal()
    document["sources"]["crm"] = copy.deepcopy(document["sources"]["shop"])
    document["tables"] = {"public.big": {"tier": "bulk"}}
    for key, template, clash in (
        ("topic_prefix", "{source}", "source shop, tier bulk and source shop, tier default"),
        ("slot", "slot_{tier}", "source shop, tier bulk and source crm, tier bulk"),
        ("publication", "pub", "source shop, tier bulk and source shop, tier default"),
    ):
        changed_one = copy.deepcopy(document)
        for name in ("shop", "crm"):
            changed_one["sources"][name][key] = template
        error = refusal(changed_one)
        assert clash in error.message
        assert f".{key}: gives the same name" in error.message
    for name in ("shop", "crm"):
        document["sources"][name]["publication"] = "pub_{tier}"  # each is in its own database
    read(document)


def test_a_topic_prefix_counts_dots_and_underscores_as_one_as_kafka_does() -> None:
    document = minimal()
    document["sources"]["crm"] = copy.deepcopy(document["sources"]["shop"])
    document["sources"]["shop"]["topic_prefix"] = "a.b"
    document["sources"]["crm"]["topic_prefix"] = "a_b"
    assert "the same name, a_b" in refusal(document).message


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("Orders 2", "Orders~202"),
        ("..", "~2e."),
        (".hidden", "~2ehidden"),
        ("a/b", "a~2fb"),
        ("a~2fb", "a~7e2fb"),
        ("é", "~c3~a9"),
        ("x'; drop table y--\n", "x~27~3b~20drop~20table~20y--~0a"),
    ],
)
def test_no_table_name_leaves_its_folder(name: str, folder: str) -> None:
    config = read(changed(("lake", "url"), "s3a://lake", minimal()))
    assert config.table_path(TableId("shop", "public", name)) == f"s3a://lake/shop/public/{folder}"


def test_a_table_can_have_a_path_of_its_own() -> None:
    config = read(full())
    assert (
        config.table_path(TableId("shop", "public", "orders")) == "s3a://bucket/lake/sales/orders"
    )


def test_columns_that_are_asked_of_the_source_are_merged_by_name() -> None:
    document = minimal()
    document["defaults"] = {"columns": {"as": {"a": "string"}}}
    document["tables"] = {"public.orders": {"columns": {"as": {"b": "string"}}}}
    settings = read(document).table_settings(TableId("shop", "public", "orders"))
    assert settings.columns.as_ == {"a": "string", "b": "string"}


def test_a_key_column_is_not_asked_by_key() -> None:
    document = minimal()
    document["tables"] = {
        "public.orders": {"key_columns": ["id"], "columns": {"as": {"id": "string"}}}
    }
    message = refusal(document).message
    assert "columns.as" in message
    assert "key columns: id" in message


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"columns": {"hash": ["a", "b"], "mask": ["b"]}}, "columns.mask", "not both, for: b"),
        ({"columns": {"hash": ["a"], "exclude": ["a"]}}, "columns.exclude", "no hash or mask: a"),
        ({"columns": {"mask": ["a"]}, "key_columns": ["a"]}, "columns.mask", "by key: a"),
        ({"columns": {"hash": ["a"]}, "key_columns": ["a"]}, "columns.hash", "by key: a"),
        (
            {"columns": {"mask": ["a"]}, "on_bad_message": "quarantine"},
            "columns.mask",
            "keeps whole messages",
        ),
    ],
)
def test_what_cannot_be_hidden_is_refused(settings, key, reason) -> None:
    found = dict(TableSettings.model_validate(settings).conflicts())
    assert reason in found[tuple(key.split("."))]


@pytest.mark.parametrize("place", ["defaults", "tables"])
def test_hashes_need_a_key(place: str) -> None:
    document = minimal()
    columns = {"columns": {"hash": ["email"]}}
    document[place] = columns if place == "defaults" else {"public.people": columns}
    message = refusal(document).message
    assert "columns.hash: needs lake.hash_key" in message
    document["lake"]["hash_key"] = "${HASH_KEY}"
    settings = read(document).table_settings(TableId("shop", "public", "people"))
    assert (settings.columns.hides("email"), settings.columns.hides("id")) == ("hash", "")


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"mode": "append", "key_columns": ["id"]}, "key_columns", "has no key"),
        ({"mode": "append", "delete_mode": "soft"}, "delete_mode", "no deletes"),
        ({"mode": "append", "index": "bucket"}, "index", "rewrite"),
        ({"mode": "append", "columns": {"as": {"a": "string"}}}, "columns.as", "read by key"),
        ({"mode": "append", "buckets": 4}, "buckets", "rewrite"),
        ({"snapshot_from": "primary"}, "snapshot_from", "only with mode: append"),
    ],
)
def test_what_a_log_has_no_use_for_is_refused(settings, key, reason) -> None:
    found = dict(TableSettings.model_validate(settings).conflicts())
    assert reason in found[tuple(key.split("."))]


def test_logs_share_a_capture_of_their_own() -> None:
    log = TableSettings(mode="append", tier="hot")
    assert (log.capture_tier, TableSettings(tier="hot").capture_tier) == ("hot_append", "hot")
    assert is_append_tier(log.capture_tier)
    assert not is_append_tier("append"), "a tier that someone called so"
    assert configured_tier(log.capture_tier) == "hot"


def test_a_column_is_not_renamed_to_itself() -> None:
    document = minimal()
    document["tables"] = {"public.orders": {"columns": {"renames": {"a": "a", "b": "c"}}}}
    error = refusal(document)
    assert error.context["field"] == 'tables."public.orders".columns.renames'
    assert "the old name equals the new name: a" in error.message


@pytest.mark.parametrize("text", ["string", "decimal(1,0)", "decimal(38,38)", "decimal(18, 4)"])
def test_a_lake_type_of_choice_is_text_or_a_decimal(text: str) -> None:
    document = minimal()
    document["defaults"] = {"columns": {"as": {"a": text}}}
    rules = read(document).defaults.columns
    assert rules.as_ == {"a": text.replace(" ", "")}
    assert (rules.is_read_by_key("a"), rules.decimal("a")) == (
        text == "string",
        "" if text == "string" else text.replace(" ", ""),
    )
    assert (rules.is_read_by_key("b"), rules.decimal("b")) == (False, "")


@pytest.mark.parametrize(
    "text",
    [
        "int",
        "decimal",
        "decimal(0,0)",
        "decimal(39,2)",
        "decimal(4,5)",
        "decimal(4,-1)",
        "DECIMAL(4,1)",
    ],
)
def test_another_lake_type_is_refused_with_what_can_be(text: str) -> None:
    document = minimal()
    document["defaults"] = {"columns": {"as": {"a": text}}}
    error = refusal(document)
    assert error.context["field"] == "defaults.columns.as.a"
    assert "is string, or decimal(p,s) with p digits, 1 to 38" in error.message


def test_decimals_are_not_asked_for_so_keys_and_logs_may_have_them() -> None:
    columns = {"as": {"id": "decimal(10,0)"}}
    for settings in ({"key_columns": ["id"]}, {"mode": "append"}):
        assert TableSettings.model_validate({**settings, "columns": columns}).conflicts() == []
