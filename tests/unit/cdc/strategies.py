"""Hypothesis strategies for the values in durable documents."""

from __future__ import annotations

from datetime import timezone

from hypothesis import strategies as st

from cdc.store.attempt import CopyView
from cdc.store.recorded_change import RecordedChange
from schemas.changes import Verdict

texts = st.text(max_size=8)
times = st.datetimes(timezones=st.just(timezone.utc))
facts = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
recorded_changes = st.builds(
    RecordedChange,
    texts,
    texts,
    texts,
    st.sampled_from(Verdict),
    st.dictionaries(
        texts,
        st.none() | st.booleans() | texts | st.lists(texts, max_size=2).map(tuple),
        max_size=2,
    ),
)
offsets = st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1), max_size=3)
views = st.builds(
    CopyView,
    texts,
    texts,
    times,
    st.booleans(),
    st.none() | texts,
    st.none() | st.integers(0),
    st.none() | texts,
)
