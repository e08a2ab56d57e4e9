"""Whether two servers sort text in the same way, judged by their collation versions."""

from __future__ import annotations

import pytest

from cdc.sources.postgres.key_order import (
    LibraryVersion,
    described,
    differing_versions,
    outdated_versions,
)


def test_equal_versions_are_not_apart() -> None:
    alike = {"a": LibraryVersion("2.36", "2.36"), "b": LibraryVersion("bytes", None)}
    assert differing_versions(alike, alike) == []
    assert outdated_versions(alike) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [("2.31", "2.36", "a (2.31, 2.36)"), (None, None, "a (unknown, unknown)"), ("2", None, "a (2")],
)
def test_versions_that_differ_or_that_nobody_knows_are_apart(
    ours: str | None, theirs: str | None, told: str
) -> None:
    (found,) = differing_versions(
        {"a": LibraryVersion(ours, None)}, {"a": LibraryVersion(theirs, None)}
    )
    assert found.startswith(told)


def test_a_column_that_only_the_replica_still_has_is_apart() -> None:
    (found,) = differing_versions({}, {"a": LibraryVersion("2.36", None)})
    assert found == "a (unknown, 2.36)"


@pytest.mark.parametrize(
    ("actual", "recorded", "told"),
    [
        ("2.36", "2.31", ["a (2.36, recorded 2.31)"]),
        (None, "2.31", ["a (unknown, recorded 2.31)"]),
        ("2.36", None, []),
        ("bytes", "1", []),
    ],
)
def test_an_index_that_is_older_than_its_library_is_named(
    actual: str | None, recorded: str | None, told: list[str]
) -> None:
    assert outdated_versions({"a": LibraryVersion(actual, recorded)}) == told


def test_an_order_that_can_be_another_one_has_another_text() -> None:
    known = LibraryVersion("2.36", "2.36")
    orders = [
        described({"a": one, "b": known}, started=started)
        for one, started in (
            (known, "noon"),
            (known._replace(actual="2.31"), "noon"),
            (known._replace(actual=None), "noon"),
            (known._replace(actual=None), "one"),
        )
    ]
    assert len({*orders}) == len(orders)
    known_again = described({"b": known._replace(recorded=None), "a": known}, started="one")
    assert known_again == orders[0], "a restart is no change while the version is known"
