"""What durable documents are made of, for tests with hypothesis."""

from __future__ import annotations

from datetime import timezone

from hypothesis import strategies as st

from cdc.store.attempt import CopyView

texts = st.text(max_size=8)
times = st.datetimes(timezones=st.just(timezone.utc))
facts = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
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
