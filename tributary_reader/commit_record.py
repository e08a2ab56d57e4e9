"""What readers need of the record that Tributary writes into each commit's metadata.

`cdc.lake.commit` writes the record. That module cannot be imported here, since it needs pyspark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.fingerprint import Fingerprint
from tributary_reader.errors import ReadError

COMMIT_KEY = "tributary.commit"
"""Key of the record in a commit's extra metadata."""
FORMAT = 1
"""The version of the record's format that this module reads."""
_REMEDY = "Install the version of tributary_reader that fits the version that writes the table."


@dataclass(frozen=True)
class HandoffFacts:
    """What readers need of a handoff document.

    Args:
        start_offsets: O of the handoff: by partition, the offsets from which the stream is applied.
        handoff_offsets: H of the handoff: by partition, the offsets before which readers see
            nothing.
        is_log: Whether the table is an append table.
        shape: Digest of the lake's columns, key and partition columns, and of the fingerprint of
            the source's catalog.
    """

    start_offsets: Mapping[int, int]
    handoff_offsets: Mapping[int, int]
    is_log: bool
    shape: str


@dataclass(frozen=True)
class CommitFacts:
    """What readers need of a commit's record.

    Args:
        kind: ``chunk`` (copied rows), ``handoff`` (the end of the copy) or ``run`` (changes).
        offsets: Next offset to read after the commit, by partition; empty for chunks.
        topic_id: UUID of the table's topic; None if it is not known.
        lacks: Number of quarantined records before ``offsets``.
        handoff: The facts of the handoff document; None before the end of the copy.
    """

    kind: str
    offsets: Mapping[int, int]
    topic_id: str | None
    lacks: int
    handoff: HandoffFacts | None

    @classmethod
    def read(cls, text: str, instant: str, path: str) -> CommitFacts:
        """Read a commit's record.

        Args:
            text: The record, as JSON.
            instant: The instant of the commit, for errors.
            path: Base path of the Hudi table, for errors.

        Raises:
            ReadError: The record has another format, or lacks a key.
        """
        place = f"the record of commit {instant} of {path}"
        try:
            record = json.loads(text)
            if (found := record["format"]) != FORMAT:
                raise ReadError(
                    f"{place} has format {found!r}; this version reads format {FORMAT} only",
                    remedy=_REMEDY,
                    path=path,
                )
            handoff = record["handoff"]
            return cls(
                kind=record["kind"],
                offsets=_offsets(record["offsets"]),
                topic_id=record["topic_id"],
                lacks=record["lacks"],
                handoff=None if handoff is None else _handoff_facts(handoff),
            )
        except KeyError as error:
            problem = f"{place} lacks the key {error}"
            raise ReadError(problem, remedy=_REMEDY, path=path) from error
        except (AttributeError, TypeError, ValueError) as error:
            problem = f"{place} is not valid: {error}"
            raise ReadError(problem, remedy=_REMEDY, path=path) from error


def _handoff_facts(handoff: Mapping[str, Any]) -> HandoffFacts:
    """Return what readers need of the handoff document in a commit's record."""
    columns = [
        [one[name] for name in ("name", "source", "lake", "hide", "read_by_key")]
        for one in handoff["columns"]
    ]
    facts = [
        sorted(columns),
        handoff["key"],
        handoff["key_text"],
        handoff["partition_by"],
        handoff["hash_key"],
        Fingerprint(handoff["fingerprint"]["facts"]).to_json(),
    ]
    return HandoffFacts(
        start_offsets=_offsets(handoff["start_offsets"]),
        handoff_offsets=_offsets(handoff["handoff_offsets"]),
        is_log=not handoff["key"],
        shape=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
    )


def _offsets(document: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in document.items()}
