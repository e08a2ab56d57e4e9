"""Whether a difference between source and lake counts, or its change had not arrived yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operate.verify.suspects import CONFIRMATIONS, Round, Sighting, Suspect, judge

OLD, NEW, OTHER = ("1", "a"), ("1", "b"), ("1", "c")
KEY = (1,)


def seen(*at_source: tuple[str, ...] | None, lake: tuple[str, ...] | None, n: int = 1) -> Sighting:
    return Sighting(frozenset(at_source), lake, n)


def rounds(*sightings: Sighting) -> Round:
    result = Round((Suspect(KEY),), (), 0)
    for sighting in sightings:
        result = judge(result.pending, {KEY: sighting})
    return result


def test_a_key_that_the_lake_shows_as_the_source_does_is_equal() -> None:
    assert rounds(seen(NEW, lake=NEW)).equal == 1


def test_a_key_that_changes_all_the_time_is_equal_to_any_of_its_rows() -> None:
    assert rounds(seen(OLD, NEW, OTHER, lake=NEW)).equal == 1


def test_a_deleted_key_that_the_lake_no_longer_has_is_equal() -> None:
    assert rounds(seen(OLD, None, lake=None, n=0)).equal == 1


def test_a_difference_is_reported_only_when_it_persists() -> None:
    once = rounds(seen(NEW, lake=OLD))
    assert not once.differences
    assert [suspect.key for suspect in once.pending] == [KEY]
    assert [s.key for s in rounds(seen(NEW, lake=OLD), seen(NEW, lake=OLD)).differences] == [KEY]


def test_a_row_that_moved_between_the_rounds_starts_anew() -> None:
    result = rounds(seen(NEW, lake=OLD), seen(OTHER, lake=OLD))
    assert not result.differences
    assert result.pending[0].seen == 1


def test_a_row_that_never_stands_still_stays_pending() -> None:
    result = rounds(*[seen(OLD, NEW, lake=OTHER)] * 5)
    assert not result.differences
    assert result.pending[0].seen == 0


def test_kinds() -> None:
    assert seen(NEW, lake=None, n=0).kind == "missing"
    assert seen(None, lake=OLD).kind == "extra"
    assert seen(NEW, lake=OLD).kind == "different"
    assert seen(NEW, lake=NEW, n=2).kind == "duplicate"


def test_a_key_that_is_twice_in_the_lake_is_a_difference_even_when_a_row_fits() -> None:
    twice = seen(NEW, lake=NEW, n=2)
    assert [suspect.key for suspect in rounds(twice, twice).differences] == [KEY]


def test_a_duplicate_of_a_hot_key_is_a_difference_too() -> None:
    assert rounds(seen(OLD, NEW, lake=NEW, n=2), seen(NEW, OTHER, lake=NEW, n=2)).differences


def test_the_columns_that_differ_are_named() -> None:
    assert seen(NEW, lake=OLD).columns(("id", "name")) == ("name",)
    assert seen(NEW, lake=None, n=0).columns(("id", "name")) == ()


rows = st.sampled_from([OLD, NEW, OTHER, None])


@given(
    st.lists(
        st.builds(
            lambda source, lake: Sighting(frozenset(source), lake, 0 if lake is None else 1),
            st.sets(rows, min_size=1),
            rows,
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_difference_without_enough_still_rounds_in_a_row(sightings: list[Sighting]) -> None:
    result = Round((Suspect(KEY),), (), 0)
    for number, sighting in enumerate(sightings):
        result = judge(result.pending, {KEY: sighting})
        if result.differences:
            last = sightings[number - CONFIRMATIONS + 1 : number + 1]
            assert len(last) == CONFIRMATIONS
            assert len({(one.at_source, one.in_lake) for one in last}) == 1
            assert all(one.unchanged_at_source and one.in_lake not in one.at_source for one in last)
        if not result.pending:
            return
