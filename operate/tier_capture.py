"""Creates and changes the capture of one tier: topics, publication, slot and connector.

With PostgreSQL, the publication alone decides which tables are captured. So a new table changes the
publication, and the connector keeps running. With MySQL and MariaDB, the connector has a list of
tables. For a new table, the connector restarts with the longer list and continues from its stored
position. The changes of the other tables wait for some seconds, and no change is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import captures_of
from cdc.capture.connector_activity import lost_connection
from cdc.capture.evidence import known
from cdc.capture.judgement import Severity, of_capture
from cdc.capture.recovery import restart
from cdc.capture.type_looks import TypeLooks
from cdc.debezium import (
    SERVER_ID,
    CaptureNames,
    SettingFinding,
    audit,
    captured_tables,
    connector_config,
    include_settings,
    server_id,
    settings_changed_while_running,
    stored_position,
    wait_for_heartbeat,
    wait_while_sending,
)
from cdc.errors import CaptureError
from cdc.runtime.failpoints import crash
from cdc.runtime.waiting import wait_while
from cdc.store.late_commits import LateCommits
from cdc.store.log_marks import LogMarks
from operate.capture_names import (
    refuse_edited_names,
    refuse_equal_numbers,
    refuse_other_installations,
    refuse_other_owner,
    refuse_shared_names,
)
from operate.known_definitions import require_known_definitions
from operate.lost_capture import (
    after_gtid_change,
    cut_off,
    dependent,
    left_on_former_server,
    not_retired,
    of_another_server,
    skipping_definition,
    users_of,
)
from operate.plugin_version import require_plugin
from operate.started_connector import StartedConnector
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.log.position import LogPosition
    from cdc.sources.base import SentTables, Source
    from operate.context import Services
    from schemas.fingerprint import Fingerprint

_log = logging.getLogger(__name__)

_CAPTURED_S, _CAPTURED_POLL_S = 2.0, (0.02, 0.2)
_LEASE_WAIT_S = 600.0
"""Bound of the wait for another process that holds the capture's lease, in seconds."""


@dataclass(frozen=True)
class Group:
    """The tables of one source and tier, which share a connector.

    Args:
        capture: Names of the tables' connector, topics, publication and slot.
        tables: The tables to capture.
    """

    capture: CaptureNames
    tables: tuple[TableId, ...]


def groups(services: Services, tables: Sequence[TableId]) -> list[Group]:
    """Return tables grouped by source and tier, in the order of each group's first table.

    Raises:
        ConfigError: The name of a publication or slot is too long.
        CaptureError: Two tiers would share a connector, a publication or a topic prefix. (Tiers of
            PostgreSQL with one slot share the connector named after this slot.) Or the settings
            give two connectors of MySQL or MariaDB the same ``database.server.id``.
    """
    found: dict[tuple[str, str], list[TableId]] = {}
    captures: dict[tuple[str, str], CaptureNames] = {}
    for table in tables:
        capture = services.capture(table)
        place = (capture.source, capture.tier)
        captures[place] = capture
        found.setdefault(place, []).append(table)
    on_plan = [one.names for one in captures_of(services.config, services.store.tables())]
    everything = captures | {(names.source, names.tier): names for names in on_plan}
    refuse_shared_names(list(everything.values()))
    refuse_equal_numbers(services.config, list(everything.values()))
    return [Group(captures[place], tuple(members)) for place, members in found.items()]


@contextmanager
def hold_for_change(services: Services, capture: CaptureNames) -> Iterator[None]:
    """Hold a capture's lease while a command changes the capture.

    Without the lease, one process could drop the slot while another process adds a table. The lease
    does not bind other installations. So another installation's capture is refused or taken over.

    Raises:
        LeaseHeldError: Another process holds the lease, and the wait for it has timed out.
        OtherConnectorError: Another installation made the capture's connector.
    """
    with services.leases.hold(capture.resource, wait_s=_LEASE_WAIT_S):
        refuse_other_owner(services, capture)
        yield


def prepare(services: Services, group: Group) -> None:
    """Create or repair a capture for a command, so that every later change is captured.

    Each step can be repeated. After an interruption, the same command continues.

    Raises:
        ConfigError: The configuration changes the publication, slot, connector or topic prefix of
            tables that were onboarded.
        CaptureError: The connector's configured settings would lose changes; another connector
            writes to the capture's topics; another installation reads the capture's slot, or made
            the capture's connector; the capture has lost changes, and published tables depend on
            it; or no heartbeat arrives.
        KafkaError: A topic cannot be created, or has a policy that loses changes.
        ConnectError: Connect lacks the connector, or has a version that loses changes; or the
            connector is refused, fails twice, or does not start in time.
        SourceError: The source refuses a statement.
    """
    capture, source = group.capture, services.source(group.capture.source)
    for error in refuse_edited_names(services, group).values():
        raise error
    wanted = wanted_connector(services, capture, group.tables)
    refuse_other_installations(services, capture, wanted)
    require_plugin(services.connect.plugins(), capture.kind)
    services.take_over_if_asked(capture.connector)
    on_source = source.capture(capture)
    # Nothing is created yet: a connector with these settings would be refused later.
    _refuse_unsound(services, capture, wanted)
    settings = {name: capture.topic_config(name) for name in topics(group)}
    services.kafka.ensure_topics(settings, services.progress)
    crash("onboard.after_topic")
    heal_log(services, group, source)
    # After an interruption, this look shows that the publication is this installation's own.
    TypeLooks(services.store, services.kafka).follow(capture, source)
    on_source.prepare()
    reconnect(services, capture)
    require_known_definitions(services, capture, source, group.tables)
    if on_source.sent_tables is not None:
        _publish_tables(services, group, on_source.sent_tables)
    crash("onboard.after_publication")
    if on_source.kept_log is not None:
        on_source.kept_log.create()
    looks = _fingerprint_digests(source, group)
    upto = source.write_marker().position if looks else None
    beats = services.kafka.stable_offsets(capture.heartbeat_topic)
    _configure_connector(services, capture, wanted, group.tables)
    services.connect.wake(capture.connector)
    _wait_for_heartbeat(services, capture, after=max(beats.values(), default=0))
    if upto is not None and _wait_until_captured(services, capture, source, upto):
        services.captured_looks.update(looks)
    crash("onboard.after_connector")


def _wait_for_heartbeat(services: Services, capture: CaptureNames, *, after: int) -> None:
    """Wait until the connector has sent a heartbeat after an offset of the heartbeats' topic."""
    started = StartedConnector(services, capture)
    started.wait_running()
    interval_s = services.config.source(capture.source).heartbeat_interval_ms / 1000
    heartbeat = partial(
        wait_for_heartbeat,
        services.kafka,
        capture,
        after=after,
        timeout_s=services.config.connect.timeout_s + interval_s,
        progress=services.progress,
        require_running=started.require_sound,
    )
    known = services.store.topics(capture.source, capture.tier)
    wait_while_sending(services.kafka, known, heartbeat)


def _fingerprint_digests(source: Source, group: Group) -> dict[TableId, str]:
    """Return the digests of the fingerprints of a command's tables; empty for MySQL and MariaDB."""
    if group.capture.reports_definitions:
        return {}
    found = source.capture(group.capture).fingerprints(group.tables)
    return {table: fingerprint.digest for table, fingerprint in found.items()}


def _wait_until_captured(
    services: Services, capture: CaptureNames, source: Source, upto: LogPosition
) -> bool:
    """Wait a short time for all changes up to a position to be captured; return whether they are.

    If True, copies that begin later need not wait for these changes again.
    """

    def behind() -> bool:
        log = source.capture(capture).log_health()
        seen = log.captured(
            lambda: stored_position(services.connect, capture),
            exactly_once=services.config.connect.exactly_once,
        )
        return seen is None or not seen.reaches(upto)

    return not wait_while(behind, timeout_s=_CAPTURED_S, poll_s=_CAPTURED_POLL_S)


def reconnect(services: Services, capture: CaptureNames) -> bool:
    """Restart a running connector if it has lost its connection to the source.

    Returns:
        Whether the connector was restarted.
    """
    status = services.connect.status(capture.connector)
    if status is None or not status.running:
        return False
    lost = lost_connection(services.kafka, services.config, capture)
    if lost:
        restart(services.connect, capture.connector, only_failed=False)
    return lost


def topics(group: Group) -> list[str]:
    """Return the topics of a group's tables, and then the capture's own topics."""
    capture = group.capture
    return [*(capture.topic(table) for table in group.tables), *capture.own_topics]


def wanted_connector(
    services: Services, capture: CaptureNames, joining: Sequence[TableId] = ()
) -> dict[str, str]:
    """Return the connector settings that follow from the configuration file and the plan.

    Args:
        services: The services of the command.
        capture: The capture.
        joining: Tables to capture that are not on the plan yet.
    """
    config = services.config
    made = connector_config(
        capture.source,
        config.source(capture.source),
        capture.tier,
        config.kafka,
        config.connect,
        tables={*joining, *users_of(services, capture)},
    )
    return {**made, **_server_id_setting(services, capture)}


def _server_id_setting(services: Services, capture: CaptureNames) -> dict[str, str]:
    """Return the setting with the number by which the source's server knows the connector.

    Another installation can have a connector of the same name on the same server. So the number of
    a new connector also depends on the Kafka cluster. An existing connector keeps its number. The
    result is empty for PostgreSQL, and if ``connect.connector`` has the setting.
    """
    if not capture.reports_definitions or SERVER_ID in services.config.connect.connector:
        return {}
    running = services.connect.connector(capture.connector) or {}
    known = running.get(SERVER_ID)
    return {SERVER_ID: known or str(server_id(capture.connector, services.kafka.ping()[0]))}


def members(services: Services, capture: CaptureNames) -> frozenset[TableId]:
    """Return the source tables whose changes a capture sends now."""
    effective = services.connect.connector(capture.connector)
    listed = None if effective is None else captured_tables(effective, capture)
    if listed is None:
        sent = services.source(capture.source).capture(capture).sent_tables
        listed = [] if sent is None else sent.tables()
    return frozenset(listed)


def remove_table(services: Services, capture: CaptureNames, table: TableId) -> bool:
    """Remove a table from its capture for a command; return whether the table was captured.

    Other tables stay captured. With MySQL and MariaDB, the connector's list of tables is shortened.
    """
    return bool(remove_tables(services, capture, [table]))


def remove_tables(
    services: Services, capture: CaptureNames, tables: Sequence[TableId]
) -> list[TableId]:
    """Remove tables from their capture; return the tables that were captured until now.

    A table that was renamed since its copy is removed under its present name. But if another table
    that needs the capture is onboarded under this name, the capture keeps the name.
    """
    sent = services.source(capture.source).capture(capture).sent_tables
    if sent is not None:
        # Tables with their names of the plan are removed one by one: a locked one keeps no other.
        keep = users_of(services, capture) | {*tables}
        renamed = sent.remove_renamed(_recorded_fingerprints(services, {*tables}), keep)
        return [*renamed, *sent.remove(tables)]
    effective = services.connect.connector(capture.connector)
    listed = None if effective is None else captured_tables(effective, capture)
    if effective is None or listed is None or not {*tables} & {*listed}:
        return []
    shorter = {**effective, **include_settings(capture, {*listed} - {*tables})}
    services.connect.put_connector(capture.connector, shorter, progress=services.progress)
    return [table for table in tables if table in listed]


def _publish_tables(services: Services, group: Group, sent: SentTables) -> None:
    """Add a group's tables to the publication; remove tables that were renamed after their copy.

    A renamed table is removed if its copy was made under the name of a table in the group. It stays
    if its present name is that of a table in the group, or of a table that needs the capture.
    """
    sent.add(group.tables)
    keep = users_of(services, group.capture) | {*group.tables}
    sent.remove_renamed(_recorded_fingerprints(services, {*group.tables}), keep)


def _recorded_fingerprints(services: Services, tables: Collection[TableId]) -> list[Fingerprint]:
    """Return the fingerprints (facts of the catalog) that copies of the tables have recorded."""
    records = (*services.store.tables(), *services.store.builds())
    attempts = (record.attempt for record in records if record.table in tables)
    found = (attempt.fingerprint for attempt in attempts if attempt is not None)
    return [fingerprint for fingerprint in found if fingerprint is not None]


def _configure_connector(
    services: Services,
    capture: CaptureNames,
    wanted: Mapping[str, str],
    joining: Sequence[TableId],
) -> None:
    """Create a capture's connector, or change its settings without a loss of changes.

    An existing connector gets all wanted settings if the plan has tables of the capture's tier, and
    none of these tables depends on the capture. Otherwise:

    - If the connector ran with settings that lose changes, unpublished copies are discarded, and
      the connector gets all wanted settings. If a published table depends on the capture, an error
      is raised instead.
    - If the connector ran with settings that lose no changes, it gets only two kinds of wanted
      settings: the list of tables, and the settings that may change while a connector runs.
    """
    running = services.connect.connector(capture.connector)
    ours = bool(not_retired(services, capture))
    if running is None or (ours and not dependent(services, capture)):
        services.connect.put_connector(capture.connector, wanted, progress=services.progress)
    elif findings := _setting_findings(services, capture, running):
        reasons = "; ".join(map(str, findings))
        what = f"connector {capture.connector} cannot be relied on ({reasons})"
        with cut_off(services, capture, what):
            services.connect.put_connector(capture.connector, wanted, progress=services.progress)
    else:
        followed = {name: wanted[name] for name in settings_changed_while_running(capture)}
        changed = {**running, **followed}
        if (listed := captured_tables(running, capture)) is not None:
            _refuse_unlisted(services, capture, listed, joining)
            # Other tables of the plan are not added. A table that the list lacked has lost changes,
            # and its presence in the list would hide this.
            changed |= include_settings(capture, {*listed, *joining})
        services.connect.put_connector(capture.connector, changed, progress=services.progress)


def _refuse_unlisted(
    services: Services, capture: CaptureNames, listed: Sequence[TableId], tables: Sequence[TableId]
) -> None:
    """Discard unpublished copies of tables that the connector's list of tables lacks.

    These tables have lost changes. If one of these tables is published, an error is raised.
    """
    lost = [
        record
        for record in dependent(services, capture)
        if record.table in tables and record.table not in listed
    ]
    for record in lost:
        what = f"connector {capture.connector} does not list table {record.table}"
        with cut_off(services, capture, what, only=record.table):
            pass


def _refuse_unsound(services: Services, capture: CaptureNames, wanted: Mapping[str, str]) -> None:
    """Raise an error if the wanted connector settings would lose changes."""
    findings = _setting_findings(services, capture, wanted)
    if findings:
        reasons = "; ".join(map(str, findings))
        raise CaptureError(
            f"connector {capture.connector} could not be relied on: {reasons}",
            remedy="Correct these properties in connect.connector.",
            connector=capture.connector,
            field=findings[0].property,
        )


def _setting_findings(
    services: Services, capture: CaptureNames, settings: Mapping[str, str]
) -> list[SettingFinding]:
    """Return a finding for each connector setting that would lose changes."""
    return audit(settings, capture, exactly_once=services.config.connect.exactly_once)


def heal_log(services: Services, group: Group, source: Source) -> None:
    """Remove the connector and the slot of a capture that has lost changes.

    A connector of MariaDB is also removed if it would skip a table's definition at its next start.
    A new connector does not skip the definition. `prepare` then creates connector and slot again.
    Unpublished copies are discarded. A capture that can continue stays as it is. If the connector
    has read another server, a slot can be left on that server; a warning and
    `Services.left_behind` name this slot.

    Raises:
        CaptureError: A published table still depends on the capture.
        KafkaError: It is not known yet whether the capture has lost changes.
    """
    capture = group.capture
    evidence = services.evidence(capture)
    evidence.require_answers()
    log, made = known(evidence.log), known(evidence.connector)
    lost = [one.message for one in of_capture(evidence) if one.severity is Severity.LOST]
    if not lost:
        what = after_gtid_change(services, capture, source, log)
        what = what or of_another_server(services, capture, source)
        lost = [] if what is None else [f"{log.title} {what}"]
    if not lost and (what := skipping_definition(services, evidence)) is not None:
        lost = [what]
    if not lost:
        if made is not None:
            # What follows can start the connector, which would hide a gap.
            services.sent.certain_position(capture, log, stored_position(services.connect, capture))
        return
    with cut_off(services, capture, lost[0]):
        if made is not None:
            wanted = wanted_connector(services, capture)
            if left := left_on_former_server(services, group, made.effective, wanted):
                _log.warning("%s", left)
                services.left_behind[capture.resource] = left
            services.connect.delete(capture.connector, progress=services.progress)
        if (kept := source.capture(capture).kept_log) is not None:
            kept.drop()
        # No table continues from the former slot, so its mark must not make the next slot look like
        # a loss. If a connector creates a slot by itself, the mark stays, and shows the loss.
        LogMarks(services.store).forget(capture.resource)
        LateCommits(services.store).forget(capture.resource)
