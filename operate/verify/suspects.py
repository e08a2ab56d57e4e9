"""Decides, with pure functions, whether a differing key is a fault or is still being changed.

The source is written to during the comparison, so one difference proves nothing. A round first
reads the position P of the source's log. The round then samples the source's row of each suspect
key repeatedly, until the lake has all changes up to P and the lake's rows were read. So a correct
lake has one of the sampled rows, or a row that was at the source only between two samples.

- If the lake has one of the sampled rows, the key is equal.
- If all samples are equal and the lake has a different row, this is a difference. A difference is
  reported only if two consecutive rounds see the same difference. So a row that changed and changed
  back between two samples cannot cause a false alarm.
- If the lake has several rows with the key, this is a difference, too, whatever the samples are.
- If the samples differ and the lake has none of the sampled rows, another round samples the key
  again. A key that is neither equal nor a difference after the last round is reported as unsettled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

DifferenceKind = Literal["missing", "extra", "different", "duplicate"]
Key = tuple[object, ...]
RowDigest = tuple[str, ...]
"""The digests of a row's values, one per column."""

CONFIRMATIONS = 2
"""Number of consecutive rounds that must see a difference before the difference is reported."""


@dataclass(frozen=True)
class Sighting:
    """The source's samples and the lake's row of one suspect key, in one round of ``verify``.

    Args:
        at_source: The distinct sampled rows of the source, where None represents a missing row.
        in_lake: The lake's row; None for a missing row.
        lake_rows: Number of rows with this key in the lake.
    """

    at_source: frozenset[RowDigest | None]
    in_lake: RowDigest | None
    lake_rows: int = 1

    @property
    def equal(self) -> bool:
        """Whether the lake has at most one row with the key, and a sample agrees with the lake."""
        return self.lake_rows <= 1 and self.in_lake in self.at_source

    @property
    def unchanged_at_source(self) -> bool:
        """Whether the source's row did not change while ``verify`` sampled it."""
        return len(self.at_source) == 1

    @property
    def kind(self) -> DifferenceKind:
        """The kind of difference between source and lake, if ``equal`` is False."""
        if self.lake_rows > 1:
            return "duplicate"
        if self.in_lake is None:
            return "missing"
        return "extra" if None in self.at_source else "different"

    def columns(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns whose values differ between source and lake.

        The result is empty if the source's row changed between samples, or if a side has no row.
        """
        if not self.unchanged_at_source or self.in_lake is None:
            return ()
        (row,) = self.at_source
        if row is None:
            return ()
        return tuple(
            name
            for name, ours, theirs in zip(names, row, self.in_lake, strict=True)
            if ours != theirs
        )


@dataclass(frozen=True)
class Suspect:
    """A key that differed between source and lake, and has not been found equal since.

    Args:
        key: Values of the key columns.
        seen: Number of consecutive rounds, up to and including the last round, that saw the same
            difference.
        last: What the last round saw of the key; None before the first round.
    """

    key: Key
    seen: int = 0
    last: Sighting | None = None


@dataclass(frozen=True)
class Round:
    """The result of one round of ``verify`` over the suspects.

    Args:
        pending: Keys that need another round.
        differences: Keys with a confirmed difference, each with what the last round saw of the key.
        equal: Number of keys that were found to be equal.
    """

    pending: tuple[Suspect, ...]
    differences: tuple[Suspect, ...]
    equal: int


def judge(suspects: tuple[Suspect, ...], sightings: Mapping[Key, Sighting]) -> Round:
    """Divide suspects of ``verify`` into equal keys, differences, and keys for another round.

    Args:
        suspects: The keys that differed before.
        sightings: What this round saw of each of these keys, at the source and in the lake.
    """
    pending: list[Suspect] = []
    differences: list[Suspect] = []
    equal = 0
    for suspect in suspects:
        sighting = sightings[suspect.key]
        if sighting.equal:
            equal += 1
        elif sighting.lake_rows > 1 or sighting.unchanged_at_source:
            again = suspect.last is not None and _same_sighting(suspect.last, sighting)
            seen = suspect.seen + 1 if again else 1
            after = replace(suspect, seen=seen, last=sighting)
            (differences if seen >= CONFIRMATIONS else pending).append(after)
        else:
            pending.append(replace(suspect, seen=0, last=sighting))
    return Round(tuple(pending), tuple(differences), equal)


def _same_sighting(before: Sighting, now: Sighting) -> bool:
    """Whether two rounds of ``verify`` saw the same difference.

    If the lake had several rows with the key in both rounds, this is the same difference, whatever
    the rows are.
    """
    if before.lake_rows > 1 and now.lake_rows > 1:
        return True
    return before.at_source == now.at_source and before.in_lake == now.in_lake


def sightings(
    keys: list[Key],
    at_source: list[tuple[Key, RowDigest]],
    absent: frozenset[Key],
    in_lake: list[tuple[Key, RowDigest]],
) -> dict[Key, Sighting]:
    """Return the sighting of each suspect key in one round of ``verify``, from the round's rows.

    Args:
        keys: The keys of the suspects.
        at_source: Rows in the samples of the source.
        absent: Keys whose row was missing from one sample or more.
        in_lake: The lake's rows with these keys.
    """
    source: defaultdict[Key, set[RowDigest | None]] = defaultdict(set)
    for key, digest in at_source:
        source[key].add(digest)
    for key in absent:
        source[key].add(None)
    lake: defaultdict[Key, list[RowDigest]] = defaultdict(list)
    for key, digest in in_lake:
        lake[key].append(digest)
    return {
        key: Sighting(
            at_source=frozenset(source[key]),
            in_lake=lake[key][0] if lake[key] else None,
            lake_rows=len(lake[key]),
        )
        for key in keys
    }
