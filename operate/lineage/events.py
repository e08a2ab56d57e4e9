"""Makes OpenLineage events from an entry of a history: the start and the end of a job's run.

Each table has three jobs. A run of Tributary is a run of the job ``run``, a copy is a run of the
job ``copy``, and a schema change is a run of the job ``schema``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    processing_engine_run,
)
from openlineage.client.uuid import generate_static_uuid

from cdc.store.history import FOLLOWED, RunEntry, SchemaEntry, StateEntry
from cdc.store.lineage import COPYING
from cdc.store.table_state import State
from operate.lineage.datasets import (
    Facets,
    lake_facets,
    lake_name,
    source_facets,
    source_name,
    topic_facets,
    topic_name,
)
from schemas.redaction import redact_own

if TYPE_CHECKING:
    from openlineage.client.generated.base import OutputDatasetFacet, RunFacet

    from cdc.config import Config
    from cdc.store.lineage import Numbered
    from cdc.store.table_state import LakeField, TableRecord
    from schemas.table import TableId

Change = lifecycle_state_change_dataset.LifecycleStateChange
VERSION = importlib.metadata.version("tributary-cdc")
PRODUCER = f"pkg:pypi/tributary-cdc@{VERSION}"
"""The URI of the program that makes the events, as a package URL."""


@dataclass(frozen=True)
class Subject:
    """The table of a history's entry, with what events need to know of the table.

    Args:
        config: The configuration.
        installation: The identity of the installation, which is part of the identity of runs.
        namespace: The namespace of jobs.
        messages: Whether events have the messages of errors.
        table: The table.
        record: The table's record; None if there is no record any more.
        schemas: The table's schema history, oldest first.
    """

    config: Config
    installation: str
    namespace: str
    messages: bool
    table: TableId
    record: TableRecord | None
    schemas: Sequence[SchemaEntry]

    def columns(self, generation: int, at: datetime) -> tuple[LakeField, ...]:
        """Return the lake's columns in a generation at time ``at``; empty if they are not known."""
        followed = [
            one for one in self.schemas if one.generation == generation and one.outcome == FOLLOWED
        ]
        past = [one for one in followed if one.at <= at]
        newest = self.newest_columns(generation) if len(past) == len(followed) else ()
        return newest or (past[-1].columns if past else ())

    def newest_columns(self, generation: int) -> tuple[LakeField, ...]:
        """Return the lake's columns now; empty if the generation is not the newest generation."""
        record = self.record
        if record is None or record.generation != generation or record.last_commit is None:
            return ()
        return record.last_commit.columns


@dataclass(frozen=True)
class _Ended:
    """How a run of a job went.

    Args:
        kind: The job: ``run``, ``copy`` or ``schema``.
        identity: What identifies the run among the runs of its table.
        noted_at: The time in the history. The run's id in OpenLineage is made from this time and
            ``identity``.
        started_at: When the run began.
        ended_at: When the run ended.
        error: What the event says of the run's failure; None if the run succeeded.
        instant: The instant of the run's newest commit; None if it is not known.
        change: How the run changed the lake table as a whole, for example CREATE; None if it did
            not.
        rows: The number of changes that were written; None if it is not known.
        bytes: The size of what was written; None if it is not known.
        columns: The lake's columns after the run; empty if they are not known.
        topic: Whether the run read the topic.
        aborted: Whether the run was stopped before its end, and did not fail.
    """

    kind: str
    identity: str
    noted_at: datetime
    started_at: datetime
    ended_at: datetime
    error: str | None = None
    instant: str | None = None
    change: Change | None = None
    rows: int | None = None
    bytes: int | None = None
    columns: tuple[LakeField, ...] = ()
    topic: bool = True
    aborted: bool = False

    @property
    def state(self) -> RunState:
        """The state in which the run ended."""
        if self.aborted:
            return RunState.ABORT
        return RunState.COMPLETE if self.error is None else RunState.FAIL


def events_of(
    subject: Subject, noted: Numbered, began: Numbered | None = None
) -> tuple[RunEvent, ...]:
    """Return the OpenLineage events of a history's entry; none if the entry is no run of a job.

    Args:
        subject: The entry's table.
        noted: The entry.
        began: If the entry ends a copy of the table, the change of state that began this copy. None
            if the entry ends no copy, or if that change is no longer in the history.
    """
    entry = noted.entry
    if isinstance(entry, RunEntry):
        return _start_and_end(subject, _ended_run(subject, noted, entry))
    if isinstance(entry, SchemaEntry):
        return _start_and_end(subject, _ended_schema_change(subject, noted, entry))
    if ends_copy(entry):
        return _start_and_end(subject, _ended_copy(subject, noted, entry, began or noted))
    return ()


def ends_copy(entry: StateEntry) -> bool:
    """Whether a state change ends a copy, for lineage: the copy is published, or has stopped."""
    ended = (State.INCREMENTAL, State.FAILED, State.PAUSED, State.NEEDS_BOOTSTRAP)
    return entry.former in COPYING and entry.state in ended


def _ended_run(subject: Subject, noted: Numbered, entry: RunEntry) -> _Ended:
    """Return, for lineage, how a run of a table went."""
    one = entry.runs == 1
    ended_at = entry.started_at + timedelta(seconds=entry.seconds) if one else noted.at
    error = None
    if entry.error is not None:
        error = _failure_as_text(subject, entry.error.error, entry.error.message)
    settings = subject.config.table_settings
    emptied = entry.counts.get("t") and settings(subject.table).on_truncate == "apply"
    return _Ended(
        "run",
        f"{entry.run_id}/{noted.number}",
        noted.at,
        entry.started_at,
        ended_at,
        error,
        entry.instant if entry.commits else None,
        Change.TRUNCATE if emptied else None,
        entry.events if entry.commits else None,
        columns=subject.columns(entry.generation, ended_at) if entry.commits else (),
    )


def _ended_schema_change(subject: Subject, noted: Numbered, entry: SchemaEntry) -> _Ended:
    """Return, for lineage, how a schema change went."""
    followed = entry.outcome == FOLLOWED
    what = "; ".join(change.what for change in entry.changes)
    return _Ended(
        "schema",
        entry.key,
        entry.at,
        entry.at,
        entry.at,
        None if followed else redact_own(f"the table is {entry.outcome}: {what}"),
        change=Change.ALTER if followed else None,
        columns=entry.columns,
        topic=False,
    )


def _ended_copy(subject: Subject, noted: Numbered, entry: StateEntry, began: Numbered) -> _Ended:
    """Return, for lineage, how a copy went."""
    error, published = None, entry.state is State.INCREMENTAL
    if entry.state is not None and not published:
        error = _failure_as_text(subject, f"the copy is {entry.state.value}", entry.why)
    record, size = subject.record, None
    if published and record is not None and record.generation == entry.generation:
        size = record.size if record.size and record.size.measured_at >= began.at else None
    first = Change.CREATE if entry.generation == 1 else Change.OVERWRITE
    return _Ended(
        "copy",
        f"{entry.generation}/{began.number}",
        began.at,
        began.at,
        noted.at,
        error,
        change=first if published else None,
        bytes=None if size is None else size.image_bytes,
        columns=subject.columns(entry.generation, noted.at) if published else (),
        aborted=entry.state is State.PAUSED,
    )


def _failure_as_text(subject: Subject, kind: str, message: str | None) -> str:
    """Return what a lineage event says of a failure.

    The message, which can quote rows, is included only if `Subject.messages` is true.
    """
    if subject.messages and message:
        return redact_own(f"{kind}: {message}")
    return f"{kind}: `tributary history {subject.table}` has the message"


def _start_and_end(subject: Subject, ended: _Ended) -> tuple[RunEvent, ...]:
    """Return the OpenLineage event of a run's start, and the event of its end."""
    source = source_name(subject.config, subject.table)
    record = subject.record
    inputs, output = [], lake_name(_lake_folder(subject))
    if source is not None:
        inputs.append((source, source_facets(record)))
    if ended.topic and record is not None:
        inputs.append((topic_name(subject.config, record.topic), topic_facets()))
    facets = lake_facets(subject.config, record, ended.columns, source) | _version_facets(ended)
    return (
        _run_event(
            subject,
            ended,
            RunState.START,
            [InputDataset(name.namespace, name.name) for name, _ in inputs],
            OutputDataset(output.namespace, output.name),
        ),
        _run_event(
            subject,
            ended,
            ended.state,
            [InputDataset(name.namespace, name.name, facets=more) for name, more in inputs],
            OutputDataset(
                output.namespace, output.name, facets=facets, outputFacets=_statistics_facet(ended)
            ),
        ),
    )


def _run_event(
    subject: Subject,
    ended: _Ended,
    state: RunState,
    inputs: list[InputDataset],
    output: OutputDataset,
) -> RunEvent:
    """Return one OpenLineage event, of the start or the end of a job's run."""
    start = state is RunState.START
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            VERSION, "Tributary", VERSION
        )
    }
    if not start and ended.error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(ended.error, "Python")
    data = f"{subject.installation}/{subject.table}/{ended.kind}/{ended.identity}"
    kind = job_type_job.JobTypeJobFacet("BATCH", "TRIBUTARY", ended.kind.upper())
    return RunEvent(
        eventTime=(ended.started_at if start else ended.ended_at).isoformat(),
        eventType=state,
        run=Run(str(generate_static_uuid(ended.noted_at, data.encode())), facets),
        job=Job(subject.namespace, job_name(subject.table, ended.kind), {"jobType": kind}),
        inputs=inputs,
        outputs=[output],
        producer=PRODUCER,
    )


def job_name(table: TableId, kind: str) -> str:
    """Return a table's job name in OpenLineage, ending in ``run``, ``copy`` or ``schema``."""
    return f"{table.source}.{table.schema}.{table.name}.{kind}"


def _lake_folder(subject: Subject) -> str:
    """Return the lake folder that names a table in lineage.

    For a shard, this is the folder of the shared lake table.
    """
    record = subject.record
    shard = subject.config.shard(subject.table) if record is None else record.shard
    if shard is not None:
        return shard.base_path
    return subject.config.own_path(subject.table) if record is None else record.base_path


def _version_facets(ended: _Ended) -> Facets:
    """Return OpenLineage's facets of a lake table's new version, and of the kind of change."""
    facets: Facets = {}
    if ended.instant is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(ended.instant)
    if ended.change is not None:
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(ended.change)
        )
    return facets


def _statistics_facet(ended: _Ended) -> dict[str, OutputDatasetFacet]:
    """Return OpenLineage's facet of the written rows and bytes; empty if they are not known."""
    if ended.rows is None and ended.bytes is None:
        return {}
    known = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        ended.rows, ended.bytes
    )
    return {"outputStatistics": known}
