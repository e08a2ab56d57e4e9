"""Whether two servers compare text alike, by the versions that they tell."""

from __future__ import annotations

import pytest

from cdc.sources.postgres.key_order import differing_versions


def test_equal_versions_are_not_apart() -> None:
    assert differing_versions({"a": "2.36", "b": "bytes"}, {"a": "2.36", "b": "bytes"}) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [("2.31", "2.36", "a (2.31, 2.36)"), (None, None, "a (unknown, unknown)"), ("2", None, "a (2")],
)
def test_versions_that_differ_or_that_nobody_knows_are_apart(
    ours: str | None, theirs: str | None, told: str
) -> None:
    (found,) = differing_versions({"a": ours}, {"a": theirs})
    assert found.startswith(told)
