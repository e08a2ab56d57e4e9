"""The commands for a table on the plan: pause, resume, retry, offboard, path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.onboarded_names import names_of
from cdc.capture.recovery import MARK_FIRST, lost_before_restart, restart
from cdc.errors import (
    CaptureError,
    ConnectError,
    LakeError,
    SourceError,
    StateError,
    UnreachableError,
    copy_lost,
)
from cdc.store.announcements import Announcements
from cdc.store.connector_restarts import Restarts
from cdc.store.copy_progress import CopyReports
from cdc.store.quarantine import Quarantine
from cdc.store.table_state import Cause, State, TableRecord, transition
from operate import tier_capture
from operate.capture_removal import depart, needed_by_others, remove_capture
from operate.data_removal import remove_data
from operate.lake_storage import folder_here
from operate.selection import not_on_plan
from operate.table_outcome import Outcome, unfinished
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc.debezium import CaptureNames
    from operate.context import Services

LEASE_WAIT_S = 120.0
"""Bound of the wait for another process that holds the table's lease, in seconds."""


class LostChangesError(CaptureError):
    """A connector was not started, since its source's log has lost uncaptured changes."""


_ASLEEP = frozenset({"PAUSED", "STOPPED"})
"""The states of a connector that an operator has paused or stopped."""


def require(services: Services, table: TableId) -> TableRecord:
    """Return the record of a command's table, which must be on the plan.

    Raises:
        StateError: The table is not on the plan.
    """
    record = services.store.get(table)
    if record is None or record.state is State.RETIRED:
        raise not_on_plan(table, offboarded=record is not None)
    return record


def pause(services: Services, table: TableId, *, reason: str) -> Outcome:
    """Stop applying changes to a table until `resume`; its topic keeps the changes meanwhile."""
    require(services, table)
    with services.leases.hold(table, wait_s=LEASE_WAIT_S):
        record = require(services, table)
        if record.state is State.PAUSED:
            return Outcome(table, "is already paused", record.state)
        moved = transition(
            record,
            State.PAUSED,
            at=_time_of_change(),
            cause=Cause(
                reason=reason,
                remedy=f"Run `tributary resume {table}` before its topic's retention ends.",
            ),
        )
        record = services.store.put(moved)
    return Outcome(table, "paused", record.state)


def resume(services: Services, table: TableId) -> Outcome:
    """Put a paused table back in the state that it had before the pause."""
    return _return_to_former_state(services, table, State.PAUSED, "resumed")


def retry(services: Services, table: TableId) -> Outcome:
    """Repair a table's connector, and put a FAILED table back in its former state.

    The connector is restarted if it has failed or has lost its connection to the source, and
    resumed if it was stopped. If the table's move is not finished, the connector of the move's
    other capture is repaired in the same way. If changes were lost, a connector that does not run
    is left as it is, since a running connector hides the loss from runs.

    In three cases, a FAILED table is put back although its connectors may not run: Kafka Connect
    does not answer, changes were lost, or the other capture's connector cannot be repaired. A note
    in the outcome then gives the reason.

    Raises:
        LostChangesError: Changes were lost, and the table's state is not FAILED.
        ConnectError: The connector fails again. Or Kafka Connect does not answer, and the table's
            state is not FAILED.
        StateError: The table's state is not FAILED, and no connector needs repair.
    """
    record = require(services, table)
    names, done, notes = services.capture_of(record), list[str](), list[str]()
    try:
        services.connect.status(names.connector)
    except ConnectError as error:
        if record.state is not State.FAILED:
            raise
        notes = [
            f"connector {names.connector} was not looked at: {error.message}. {error.remedy}"
            " `tributary check` then shows whether the connector runs."
        ]
    else:
        try:
            done += _repair_connector(services, names, MARK_FIRST)
        except LostChangesError as error:
            if record.state is not State.FAILED:
                raise
            notes.append(f"{error.message}. {error.remedy}")
        if record.other is not None:
            other = names_of(services.config, table.source, record.other)
            try:
                done += _repair_connector(services, other, f"Run `tributary move {table}` again.")
            except TributaryError as error:
                if record.state is not State.FAILED:
                    raise
                notes.append(f"{error.message}. {error.remedy}")
    if done and record.state is not State.FAILED:
        return Outcome(table, "; ".join(done), record.state)
    released = _return_to_former_state(services, table, State.FAILED, "set to be tried again")
    return replace(released, details={"notes": notes} if notes else {})


def _repair_connector(services: Services, names: CaptureNames, if_lost: str) -> list[str]:
    """For ``retry``, restart or resume a capture's connector if needed; return what was done.

    Args:
        services: The services of the command.
        names: The capture.
        if_lost: The remedy that the error advises if changes were lost.

    Raises:
        LostChangesError: Changes were lost, which a started connector would hide.
        ConnectError: The connector fails again, or Kafka Connect does not answer.
    """
    # A command that changes the connector can stop it for a moment, and must not be disturbed.
    with tier_capture.hold_for_change(services, names):
        seen = services.connect.status(names.connector)
        failed = seen is not None and seen.failure is not None
        if failed or (seen is not None and seen.state in _ASLEEP):
            _refuse_lost_changes(services, names, if_lost)
        woken = services.connect.wake(names.connector)
        reconnected = tier_capture.reconnect(services, names)
        if failed or reconnected:
            Restarts(services.store).forget(names.connector)
        if failed:
            restart(services.connect, names.connector)
    if not (woken or failed or reconnected):
        return []
    services.connect.wait_running(names.connector, progress=services.progress)
    return [f"{'resumed' if woken and not failed else 'restarted'} connector {names.connector}"]


def _refuse_lost_changes(services: Services, names: CaptureNames, remedy: str) -> None:
    """Refuse ``retry`` of a connector if the source's log has lost changes that were not captured.

    Raises:
        LostChangesError: Changes were lost.
    """
    lost = lost_before_restart(
        services.source(names.source).capture(names),
        services.connect,
        names,
        services.sent,
    )
    if lost is not None:
        raise LostChangesError(
            f"connector {names.connector} was not restarted, since changes are lost: {lost}",
            remedy=remedy,
            connector=names.connector,
        )


def _return_to_former_state(
    services: Services, table: TableId, origin: State, action: str
) -> Outcome:
    """Put a table back in the state that it had before ``origin``, which is PAUSED or FAILED.

    Raises:
        StateError: The table is not in the state ``origin``.
    """
    require(services, table)
    with services.leases.hold(table, wait_s=LEASE_WAIT_S):
        record = require(services, table)
        if record.state is not origin or record.resume_to is None:
            remedy = f"See `tributary status {table}` for what it needs."
            if record.state is State.NEEDS_BOOTSTRAP:
                remedy = f"Run `tributary bootstrap {table}`."
            elif record.state is State.PAUSED:
                remedy = f"Run `tributary resume {table}`."
            elif record.state is State.FAILED:
                remedy = f"Run `tributary retry {table}`."
            raise StateError(
                f"table {table} is {record.state.value}, not {origin.value}",
                remedy=remedy,
                table=table,
                state=record.state.value,
            )
        record = services.store.put(transition(record, record.resume_to, at=_time_of_change()))
    left = unfinished(record)
    return Outcome(table, f"{action}. {left}" if left else action, record.state)


def forget_build(services: Services, table: TableId) -> bool:
    """Delete the record of a table's next generation, which a command no longer needs.

    The files of this generation stay until abandoned generations are removed.

    Returns:
        Whether there was a next generation.

    Raises:
        LeaseHeldError: Another process builds the next generation.
    """
    build = services.store.get(table, beside=True)
    if build is None:
        return False
    with services.leases.hold(build.resource):
        services.store.delete(table, beside=True)
    return True


def absent_sources(services: Services, tables: Iterable[TableId]) -> dict[str, SourceError]:
    """Return, for ``offboard``, the sources that cannot be reached, each with the error.

    Raises:
        SourceError: A source can be reached, but refuses the login or the query.
    """
    absent: dict[str, SourceError] = {}
    for name in dict.fromkeys(table.source for table in tables):
        try:
            services.source(name).identity()
        except UnreachableError as error:
            absent[name] = error
    return absent


def offboard(
    services: Services,
    table: TableId,
    *,
    delete_data: bool,
    absent: SourceError | None = None,
) -> Outcome:
    """Take a table off the plan, and remove it from its capture, for ``offboard``.

    The connector, slot and publication are removed after the capture's last table has left.

    Args:
        services: The services of the command.
        table: The table.
        delete_data: Whether to delete the table's topic, the lake table's name in the metastore,
            and the lake table's generations that this installation made. If the lake table has
            other shards, only this shard's rows in the lake are deleted. If no other table needs
            the capture, the capture's own topics are deleted, too.
        absent: The error if the table's source does not answer. The source is then not queried, and
            a note names what remains on the source. None if the source is to be queried.
    """
    if services.store.get(table) is None:
        raise not_on_plan(table)
    with services.leases.hold(table, wait_s=LEASE_WAIT_S) as lease:
        record = services.store.get(table)
        if record is None:
            raise not_on_plan(table)
        names = services.capture_of(record)
        done = ["gave up its next generation"] if forget_build(services, table) else []
        gone, notes = _leave_other(services, record, delete_topics=delete_data, absent=absent)
        done += gone
        with (
            tier_capture.hold_for_change(services, names),
            _naming_absence(services, table, absent),
        ):
            last = not needed_by_others(services, names, {table})
            if absent is None and tier_capture.remove_table(services, names, table):
                done.append("left the capture")
            if record.state is not State.RETIRED:
                retired = transition(record, State.RETIRED, at=_time_of_change())
                record = services.store.put(replace(retired, other=None))
                _forget_shown(services, table)
            if last:
                gone = remove_capture(
                    services, names, delete_topics=delete_data, on_source=absent is None
                )
                done += [f"dropped {what}" for what in gone]
        if delete_data:
            notes += remove_data(services, record, lease)
            Quarantine(services.store).forget(table)
            done.append(f"deleted {record.base_path} and topic {record.topic}")
            services.store.put(replace(record, last_commit=None, updated_at=_time_of_change()))
    if absent is not None:
        notes += _left_there(services, names, table, absent, last=last)
    return Outcome(
        table,
        "offboarded: " + ("; ".join(done) or "nothing to remove"),
        State.RETIRED,
        details={"notes": notes} if notes else {},
    )


def _forget_shown(services: Services, table: TableId) -> None:
    """Delete an offboarded table's data that the state store keeps only for people to read."""
    Announcements(services.store).drop(table)
    CopyReports(services.store).forget(table, beside=False)


def _leave_other(
    services: Services, record: TableRecord, *, delete_topics: bool, absent: SourceError | None
) -> tuple[list[str], list[str]]:
    """For ``offboard``, remove a table from the other capture of its unfinished move, if any.

    Returns:
        What was removed, and notes on what remains on a source that does not answer.
    """
    table, other = record.table, record.other
    if other is None:
        return [], []
    names = names_of(services.config, table.source, other)
    notes: list[str] = []
    with (
        tier_capture.hold_for_change(services, names),
        _naming_absence(services, table, absent),
    ):
        if absent is None:
            gone = depart(services, names, [table], delete_topics=delete_topics)
        else:
            last = not needed_by_others(services, names, {table})
            gone = remove_capture(services, names, on_source=False) if last else []
            notes = _left_there(services, names, table, absent, last=last)
    removed = [f"left {names.resource}", *(f"dropped {what}" for what in gone)]
    if delete_topics and services.kafka.delete_topic(other.topic):
        removed.append(f"deleted topic {other.topic}")
    return removed, notes


@contextmanager
def _naming_absence(
    services: Services, table: TableId, absent: SourceError | None
) -> Iterator[None]:
    """If the ``with`` block fails and the source does not answer, advise ``--source-gone``."""
    try:
        yield
    except TributaryError as error:
        if absent is not None or not _is_source_absent(services, table):
            raise
        raise error.advising(
            f"If the source is gone for good, run `tributary offboard {table} --source-gone`."
        ) from error


def _is_source_absent(services: Services, table: TableId) -> bool:
    """Whether a table's source does not answer. A source that refuses the login has answered."""
    try:
        return bool(absent_sources(services, [table]))
    except SourceError:
        return False


def _left_there(
    services: Services, names: CaptureNames, table: TableId, absent: SourceError, *, last: bool
) -> list[str]:
    """Return notes on what ``offboard`` could not remove, since the source does not answer.

    Each note says what to do when the source answers again.
    """
    on_source = services.source(names.source).capture(names)
    notes = []
    if statements := on_source.removal(table, last=last):
        notes.append(
            f"the source does not answer ({absent.message}). If it comes back, run there:"
            f" {' '.join(statements)}"
        )
    if on_source.sent_tables is None and not last:
        notes.append(
            f"connector {names.connector} still lists the table, since its source does not answer"
            f" ({absent.message}). If it comes back, run `tributary offboard {table}` again."
        )
    return notes


def _time_of_change() -> datetime:
    """Return the time that a command records for its change of a table, in UTC."""
    return datetime.now(timezone.utc)


def published_path(services: Services, table: TableId) -> str:
    """Return the path of a table's published generation, which ``path`` prints.

    Raises:
        StateError: The table is not on the plan, or is not published yet.
        LakeError: The table was published, but its pointer or its folder is missing.
    """
    from cdc.lake.publish import current_path, folder_exists
    from cdc.run.published_generation import missing_folder

    record = services.store.get(table)
    if record is None:
        raise not_on_plan(table)
    followed = State.INCREMENTAL in (record.state, record.resume_to)
    base = record.base_path if record.shard is None else record.shard.base_path
    local = folder_here(services.config, base)
    path = current_path(base, None if local is not None else services.spark)
    if path is None and record.state is State.RETIRED:
        raise not_on_plan(table)
    if path is None and followed:
        if not (folder_exists(services.spark, base) if local is None else local.exists()):
            raise missing_folder(record)
        raise LakeError(
            f"table {table} is {record.state.value}, but its pointer in {base} is missing",
            remedy=f"To copy the table again, {copy_lost(table)}.",
            table=table,
            path=base,
        )
    if path is None:
        raise StateError(
            f"table {table} is {record.state.value} and not published yet",
            remedy=f"Run `tributary bootstrap {table}`; `tributary status {table}` shows its"
            " state.",
            table=table,
        )
    return path
