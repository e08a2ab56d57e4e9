"""Rows from many look-ups in the source are combined into few data frames."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cdc.run.source_lookup import joined

Rows = list[tuple[Any, ...]]
ROWS = st.lists(st.tuples(st.integers(), st.one_of(st.none(), st.text(), st.binary())))


def test_a_million_small_rows_in_queries_of_2000_are_a_few_frames() -> None:
    answers = ([(query * 2_000 + n, None) for n in range(2_000)] for query in range(500))
    frames = [*joined(answers, 16 * 1024 * 1024)]
    assert len(frames) == 2
    assert [row for rows in frames for row in rows] == [(n, None) for n in range(1_000_000)]


def test_large_values_end_a_frame() -> None:
    large = ("x" * 1_000, b"y" * 1_000, ["z" * 500, None, "z" * 500])
    answers: list[Rows] = [[(n, large[n % 3]), (n, large[n % 3])] for n in range(6)]
    frames = [*joined(answers, 4_000)]
    assert [len(rows) for rows in frames] == [4, 4, 4]
    assert frames[0] == answers[0] + answers[1]


@given(st.lists(ROWS), st.integers(1, 500))
def test_each_row_is_in_one_frame_in_its_place(answers: list[Rows], enough: int) -> None:
    wanted = [row for rows in answers for row in rows]
    frames = [*joined([[*rows] for rows in answers], enough)]
    assert [row for rows in frames for row in rows] == wanted
    assert all(frames), "no frame is empty"


def test_without_rows_there_is_no_frame() -> None:
    assert [*joined([], 1)] == []
    assert [*joined([[], []], 1)] == []
