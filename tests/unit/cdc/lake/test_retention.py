"""How many commits are kept for readers, and how often a table commits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import TableSettings
from cdc.config.value_types import seconds_of
from cdc.lake.table_services import MOST_BETWEEN_CLUSTERINGS, Retention
from cdc.run import plan
from cdc.store.table_state import CommitSummary, State, TableRecord
from schemas.table import TableId
from tests.records import table_record

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone.utc)
TABLE = TableId("shop", "public", "orders")


def instant(age_s: float) -> str:
    return f"{NOW - timedelta(seconds=age_s):%Y%m%d%H%M%S%f}"[:17]


@given(st.lists(st.floats(0, 10_000), max_size=50), st.integers(1, 7200))
def test_the_commit_that_was_newest_when_the_oldest_reader_began_stays(
    ages: list[float], keep_s: int
) -> None:
    instants = sorted({instant(age) for age in ages})
    kept = instants[-Retention.of(instants, keep_s, NOW).commits :]
    before = [one for one in instants if one < instant(keep_s)]
    assert set(instants) - set(before) <= set(kept)
    assert not before or before[-1] in kept
    assert len(kept) >= min(2, len(instants))


def test_upkeep_is_rare_where_much_is_kept_and_the_timeline_is_bounded() -> None:
    many = Retention.of([instant(age) for age in range(0, 3600, 5)], 3600, NOW)
    assert (many.commits, many.every) == (721, 72)
    assert int(many.options()["hoodie.keep.min.commits"]) > many.commits
    assert int(many.options()["hoodie.keep.max.commits"]) <= 721 + 1 + 72
    few = Retention.of([instant(900 * age) for age in range(9)], 3600, NOW)
    assert (few.commits, few.every) == (6, 5)


@pytest.mark.parametrize("kept", [9, 721])
def test_tables_that_commit_together_have_their_upkeeps_after_different_commits(kept: int) -> None:
    retention = Retention(kept)
    tables = [TableId("shop", "public", f"t{number}") for number in range(3_000)]
    for table in tables[:50]:
        due = [commits for commits in range(500) if retention.is_due(commits, table)]
        assert due == list(range(due[0], 500, retention.every)), "each has its own, at one pace"
    share = len(tables) / retention.every
    for commits in range(100, 100 + retention.every):
        at_once = sum(retention.is_due(commits, table) for table in tables)
        assert 0.5 * share < at_once < 1.6 * share, commits


@given(st.integers(2, 2000), st.integers(0, MOST_BETWEEN_CLUSTERINGS))
def test_commits_are_counted_up_to_the_next_clustering_before_they_are_archived(
    commits: int, often: int
) -> None:
    options = Retention(commits).options(cluster_every=often)
    assert int(options["hoodie.keep.min.commits"]) > max(commits, often)
    assert int(options["hoodie.keep.max.commits"]) > int(options["hoodie.keep.min.commits"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("2d", 172800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds
    assert TableSettings(readers_keep=text).readers_keep_s == seconds


@pytest.mark.parametrize("text", ["0s", "1", "1.5h", "-1h", "1 h", "1w", ""])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="readers_keep"):
        TableSettings(readers_keep=text)


def record(committed_s: float, watermark_s: float | None, state: State) -> TableRecord:
    watermark = None if watermark_s is None else NOW - timedelta(seconds=watermark_s)
    last = CommitSummary({0: 5}, None, watermark, "i", NOW - timedelta(seconds=committed_s))
    return table_record(
        table=TABLE,
        state=state,
        base_path="/lake",
        updated_at=NOW,
        last_commit=last,
    )


@pytest.mark.parametrize(
    ("committed_s", "watermark_s", "state", "waits"),
    [
        (10, 20, State.INCREMENTAL, True),
        (89, 899, State.INCREMENTAL, True),
        (90, 100, State.INCREMENTAL, False),
        (10, 900, State.INCREMENTAL, False),
        (10, None, State.INCREMENTAL, False),
        (-5, 20, State.INCREMENTAL, False),
        (10, 20, State.CATCHING_UP, False),
    ],
    ids=["lately", "almost", "long ago", "late", "unknown", "in the future", "catching up"],
)
def test_a_table_that_committed_lately_waits_unless_it_is_late(
    committed_s: float, watermark_s: float | None, state: State, waits: bool
) -> None:
    settings = TableSettings(freshness_target_s=900)
    assert plan.waits_for_later_run(record(committed_s, watermark_s, state), settings, NOW) is waits
    often = TableSettings(freshness_target_s=900, min_commit_interval="5s")
    assert plan.waits_for_later_run(record(6, 20, State.INCREMENTAL), often, NOW) is False
