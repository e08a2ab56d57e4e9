"""Which ranges of a key are compared, in which pieces, and for which part a table is verified."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.config.checks import CheckSettings
from cdc.errors import LakeError
from cdc.log.position import Lsn
from cdc.sources import open_source
from cdc.sources.source_facts import KeyRange, TimeRange
from cdc.store.verifications import Proven
from operate.data_checks.verified import scope_of
from operate.verify.compare import ComparedRows
from operate.verify.parts import Compared, ComparedPart, Part, Plan
from operate.verify.scope import KeyOrder, Scope, joined, left, pieces, ranges_of, sampled
from operate.verify.suspects import Suspect
from operate.verify.table import _source_to_verify
from schemas.table import Column, TableId, TableSchema
from tests.unit.cdc.configuration import ENVIRONMENT, full, read

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def schema(*types: str, source_type: str = "") -> TableSchema:
    columns = tuple(
        Column(f"k{number}", source_type or one, one) for number, one in enumerate(types)
    )
    return TableSchema(
        TableId("shop", "public", "t"), columns, tuple(column.name for column in columns)
    )


NUMBERS = KeyOrder(schema("bigint"), uuids_sort_as_text=True)


@pytest.mark.parametrize("lake_type", ["string", "timestamp", "double", "boolean", "binary"])
def test_a_key_that_the_source_sorts_by_its_own_rules_is_refused(lake_type: str) -> None:
    with pytest.raises(LakeError, match="the source sorts column k1 by rules"):
        KeyOrder(schema("bigint", lake_type), uuids_sort_as_text=True)


def test_a_uuid_sorts_as_text_on_postgres_only() -> None:
    of_uuid = schema("string", source_type="uuid")
    assert KeyOrder(of_uuid, uuids_sort_as_text=True).value(("a-b",)) == ("a-b",)
    with pytest.raises(LakeError):
        KeyOrder(of_uuid, uuids_sort_as_text=False)


def test_keys_compare_as_numbers_and_not_as_text() -> None:
    order = KeyOrder(schema("decimal(20,0)", "date", "int"), uuids_sort_as_text=False)
    assert order.value(("9", "2026-01-02", "-5")) < order.value(("10", "2026-01-01", "-50"))
    assert order.value(("9", "2026-01-02", "-5")) > order.value(("9", "2026-01-02", "-50"))


POINTS = st.lists(st.integers(-50, 50), min_size=1, max_size=20, unique=True).map(
    lambda numbers: [(str(number),) for number in sorted(numbers)]
)


def inside(one: KeyRange, number: int) -> bool:
    above = one.lower is None or int(one.lower[0]) <= number
    return above and (one.upper is None or number < int(one.upper[0]))


@given(points=POINTS, upto=st.integers(-60, 60))
def test_what_is_left_after_a_key_is_each_later_key_once(
    points: list[tuple[str, ...]], upto: int
) -> None:
    ranges = left(ranges_of(points), NUMBERS, (str(upto),))
    for number in range(-70, 70):
        assert sum(inside(one, number) for one in ranges) == (number >= upto)


@given(points=POINTS, parallel=st.integers(1, 5))
def test_pieces_and_joined_ranges_cover_what_the_ranges_cover(
    points: list[tuple[str, ...]], parallel: int
) -> None:
    ranges = ranges_of(points)
    groups = pieces(ranges, parallel)
    assert [one for group in groups for one in group] == ranges
    assert all(len(joined(group)) == 1 for group in groups)
    assert joined(ranges) == [KeyRange()]
    apart = ranges[::2]
    for number in range(-60, 60):
        assert any(inside(one, number) for one in apart) == any(
            inside(one, number) for one in joined(apart)
        )


@given(points=POINTS, fraction=st.floats(0.01, 1.0), seed=st.integers(0, 99))
def test_a_sample_is_a_part_of_the_ranges_and_follows_from_its_seed(
    points: list[tuple[str, ...]], fraction: float, seed: int
) -> None:
    ranges = ranges_of(points)
    scope = Scope("sample", fraction, seed)
    chosen = sampled(ranges, scope)
    assert chosen == sampled(ranges, copy.copy(scope))
    assert [one for one in ranges if one in chosen] == chosen
    assert fraction * len(ranges) <= len(chosen) <= max(1, fraction * len(ranges) + 1)


def test_seeds_choose_different_ranges() -> None:
    ranges = ranges_of([(str(number),) for number in range(100)])
    chosen = {tuple(sampled(ranges, Scope("sample", 0.1, seed))) for seed in range(20)}
    assert len(chosen) > 10


def compared_part(keys: int, *, differing: int = 0) -> ComparedPart:
    rows = ComparedRows(keys, keys, keys, differing, tuple((n,) for n in range(differing)))
    differences = tuple(Suspect((n,)) for n in range(differing))
    return ComparedPart(rows, differences, (), 1, Lsn(9), {0: 5})


def parts(*uppers: int | None) -> tuple[Part, ...]:
    return tuple(
        Part([KeyRange(None, None if upper is None else (str(upper),))]) for upper in uppers
    )


def test_a_table_is_proven_up_to_the_last_piece_of_those_that_were_equal() -> None:
    plan = Plan(parts(10, 20, 30, None), ranges=4, began_at=NOW)
    found = Compared().after(compared_part(5), plan.parts[0])
    assert plan.proven(found) == Proven(NOW, ("10",), str(Lsn(9)), 5)
    found = found.after(compared_part(6), plan.parts[1])
    assert plan.proven(found) == Proven(NOW, ("20",), str(Lsn(9)), 11)
    assert plan.counts(found) == (4, 2)
    broken = found.after(compared_part(7, differing=1), plan.parts[2]).after(
        compared_part(8), plan.parts[3]
    )
    assert plan.proven(broken) == Proven(NOW, ("20",), str(Lsn(9)), 11), "not beyond a difference"
    assert (broken.rows.keys, len(broken.differences)) == (26, 1)
    whole = found.after(compared_part(7), plan.parts[2]).after(compared_part(8), plan.parts[3])
    assert plan.proven(whole) is None


def test_a_comparison_that_goes_on_keeps_its_beginning() -> None:
    earlier = Proven(datetime(2025, 1, 1, tzinfo=timezone.utc), ("7",), "0/1", 100)
    plan = Plan(parts(10, None), ranges=9, earlier=earlier, began_at=NOW)
    assert plan.proven(Compared()) == earlier
    found = Compared().after(compared_part(5), plan.parts[0])
    assert plan.proven(found) == replace(earlier, upto=("10",), position=str(Lsn(9)), rows=105)
    broken = Compared().after(compared_part(5, differing=2), plan.parts[0])
    assert plan.proven(broken) == earlier


def verify(**settings: Any) -> CheckSettings:
    return CheckSettings.model_validate({"kind": "verify", **settings})


def test_a_window_ends_before_what_has_not_settled() -> None:
    check = verify(method="window", time_column="at", window="1d", settle="1h")
    scope = scope_of(check, now=NOW, seed=1)
    assert scope.window == TimeRange("at", "2026-01-01 02:04:05", "2026-01-02 02:04:05")
    assert not scope.whole
    assert not scope.in_pieces


def test_a_check_reads_the_server_that_it_names() -> None:
    assert not scope_of(verify(), now=NOW, seed=1).from_primary
    assert scope_of(verify(read_from="primary"), now=NOW, seed=1).from_primary


@pytest.mark.parametrize("from_primary", [False, True])
def test_a_verification_from_the_primary_opens_the_source_without_its_replica(
    from_primary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    config = read(full())
    services = SimpleNamespace(
        config=config, source=lambda name: open_source(name, config.source(name))
    )
    found = _source_to_verify(
        cast("Any", services), TableId("shop", "public", "t"), Scope(from_primary=from_primary)
    )
    assert found.has_replica is not from_primary
    assert config.source("shop").replica is not None


def test_a_budget_makes_pieces_that_go_on() -> None:
    scope = scope_of(verify(max_seconds=60, max_sessions=2), now=NOW, seed=1)
    assert (scope.in_pieces, scope.go_on, scope.max_sessions) == (True, True, 2)
    whole = scope_of(verify(), now=NOW, seed=0)
    assert not whole.in_pieces
    sample = scope_of(verify(method="sample", fraction=0.1), now=NOW, seed=7)
    assert (sample.needs_order, sample.seed, sample.whole) == (True, 7, False)
    assert cast("Any", sample).fraction == 0.1
