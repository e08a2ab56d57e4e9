"""Refuses names of captures and topics that would lose or mix the changes of tables.

Two captures must not share a name, two installations must not share a slot, two tables must not
share a topic, and a capture keeps the names with which its tables were onboarded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import captures_of, listed
from cdc.capture.onboarded_names import require_same_names
from cdc.config.tables import configured_tier
from cdc.debezium import (
    SERVER_ID,
    came_lately,
    latest_heartbeat,
    read_server,
    silence_bound_s,
    topic_collisions,
)
from cdc.errors import (
    CaptureError,
    ConfigError,
    ConnectError,
    OtherConnectorError,
    StateError,
)
from cdc.runtime.waiting import wait_while
from cdc.store.kept_type_looks import KeptTypeLooks
from cdc.store.table_state import State
from operate.lost_capture import users_of

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from operate.tier_capture import Group
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_SESSION_ENDS_S, _POLL_S = 10.0, 0.2


def refuse_shared_names(captures: Sequence[CaptureNames]) -> None:
    """Refuse a command if two captures share a connector, a publication or a topic prefix.

    If two tiers shared a publication, each tier would get the tables of both tiers, and the removal
    of one tier would drop the publication that the other tier needs.

    Raises:
        CaptureError: Two captures share a name. The error names both tiers and this name.
    """
    seen: dict[tuple[str, str, str], CaptureNames] = {}
    for capture in captures:
        for field in ("connector", "publication", "topic_prefix"):
            name = getattr(capture, field)
            if name is None:
                continue
            # A publication's name is unique in its database only. In names of metrics, Kafka takes
            # "." and "_" for the same character.
            place = capture.source if field == "publication" else ""
            other = seen.setdefault((field, place, name.replace(".", "_")), capture)
            if other is not capture:
                raise CaptureError(
                    f"tiers {other.source}/{other.tier} and {capture.source}/{capture.tier} would"
                    f" share the {field.replace('_', ' ')} {name}",
                    remedy="Put {source} and {tier} into slot, publication and topic_prefix of"
                    " the sources.",
                    field=field,
                )


def refuse_equal_numbers(config: Config, captures: Sequence[CaptureNames]) -> None:
    """Refuse a command if ``connect.connector`` gives two tiers of a source one `SERVER_ID`.

    If two connectors had one `SERVER_ID`, the primary would disconnect one when the other connects.

    Raises:
        CaptureError: A source of MySQL or MariaDB has several tiers, and the settings give all its
            connectors the same `SERVER_ID`.
    """
    if (number := config.connect.connector.get(SERVER_ID)) is None:
        return
    seen: dict[str, CaptureNames] = {}
    for capture in captures:
        if not capture.reports_definitions:
            continue
        if (other := seen.setdefault(capture.source, capture)) is not capture:
            raise CaptureError(
                f"tiers {other.source}/{other.tier} and {capture.source}/{capture.tier} would share"
                f" the {SERVER_ID} {number}, and the primary ends one of two connectors with the"
                " same number",
                remedy=f"Remove {SERVER_ID} from connect.connector: without it each connector has a"
                " number of its own.",
                field="connect.connector",
            )


def refuse_edited_names(services: Services, group: Group) -> dict[TableId, ConfigError]:
    """Return an error for each table of a group if the settings have renamed the group's capture.

    The records of onboarded tables, and of tables that move to the capture, have the former names.
    With the new names, the command would create a second capture, and nothing would watch or remove
    the capture with the former names.
    """
    now = group.capture
    for record in services.store.tables():
        if record.table.source != now.source or record.state is State.RETIRED:
            continue
        for one in record.captures:
            try:
                if one.tier == now.tier:
                    require_same_names(record.table, one, now)
            except ConfigError as error:
                return dict.fromkeys(group.tables, error)
    return {}


def refuse_other_owner(services: Services, capture: CaptureNames) -> None:
    """Check that no other installation made the connector of a capture.

    The check is skipped if the command takes over connectors of other installations. If Connect
    does not answer, the check passes: the step that needs Connect then fails.

    Raises:
        OtherConnectorError: Another installation made the connector.
    """
    if services.take_over:
        return
    try:
        services.connect.require_own(capture.connector)
    except OtherConnectorError:
        raise
    except ConnectError as error:
        _log.info("the owner of connector %s is not known: %s", capture.connector, error)


def refuse_other_installations(
    services: Services, capture: CaptureNames, wanted: Mapping[str, str]
) -> None:
    """Look for signs that another installation uses the capture's names; if there are any, refuse.

    Args:
        services: The services of the command.
        capture: The capture.
        wanted: The connector's settings, as the configuration file gives them.

    Raises:
        CaptureError: Another connector writes to the capture's topics; another installation reads
            the capture's slot, or can use its publication; the slot is for another database or
            another tool; the connector with the capture's name reads another database; or
            heartbeats of another server come to the capture's topic.
    """
    refuse_other_writers(services.connect.configs(), capture)
    refuse_other_readers(services, capture)
    _refuse_slot_without_publication(services, capture)
    _refuse_other_publication(services, capture)
    refuse_other_database(services, capture, wanted)
    _refuse_other_server(services, capture)


def refuse_other_writers(configs: Mapping[str, Mapping[str, str]], capture: CaptureNames) -> None:
    """Refuse a command if another connector writes to a new capture's topics.

    The capture is new if it has no connector yet.

    The other connector is left from an earlier onboarding, or belongs to another installation.
    With both connectors, the topics would have each change twice, the second time perhaps after
    newer changes of the same row.

    Args:
        configs: The configuration of each connector, by its name.
        capture: The capture.

    Raises:
        CaptureError: Another connector has the capture's topic prefix.
    """
    if capture.connector in configs:
        return
    for name, settings in sorted(configs.items()):
        if settings.get("topic.prefix") == capture.topic_prefix:
            raise CaptureError(
                f"connector {name} already writes to topics with the prefix"
                f" {capture.topic_prefix}, so connector {capture.connector} would write each change"
                " a second time",
                remedy=f"If connector {name} is left from an earlier name of this capture, delete"
                " it in Kafka Connect, and drop its slot and publication on the source. Otherwise"
                " give this installation names of its own: set other slot, publication and"
                f" topic_prefix for source {capture.source}, or name the source otherwise.",
                connector=name,
                field=f"sources.{capture.source}.topic_prefix",
            )


def refuse_other_readers(services: Services, capture: CaptureNames) -> None:
    """Check that no other installation reads the slot of a capture that has no connector yet.

    Two installations with the same names would share the slot. Each installation would move the
    slot past changes that the other installation lacks. While the other installation's worker
    restarts, nothing reads the slot. So a fresh heartbeat also counts as proof of a reader, unless
    this installation can have written the heartbeat.

    Args:
        services: The services of the command.
        capture: The capture.

    Raises:
        CaptureError: Another program reads the slot, or has just read it; or the slot is for
            another database of the server, or for another tool.
    """
    kept = services.source(capture.source).capture(capture).kept_log
    if kept is None:
        return
    kept.require_own()
    if services.connect.connector(capture.connector) is not None:
        return
    # The session of a connector that was deleted just now ends by itself.
    who = wait_while(kept.shown_reader, timeout_s=_SESSION_ENDS_S, poll_s=_POLL_S)
    if who is not None:
        raise _other_reader_error(capture, f"is read by {who}", "delete it")
    if not kept.exists() or _was_captured_here(services, capture):
        return
    age_s, bound_s = kept.beat_age_s(), _heartbeat_bound_s(services, capture)
    if age_s is not None and age_s < bound_s:
        raise _other_reader_error(
            capture,
            f"was read {max(age_s, 0.0):.0f} s ago, since its newest heartbeat is of then",
            f"delete it, and wait until its newest heartbeat is {bound_s:.0f} s old",
        )


def _refuse_slot_without_publication(services: Services, capture: CaptureNames) -> None:
    """Check that a capture new to this installation has a publication if it has a slot.

    A slot without its publication looks unreadable, so the command would drop the slot and create
    it again. But `onboard` creates the publication before the slot. So a slot without a publication
    can belong to another tool that does not read the slot at the moment.

    Raises:
        CaptureError: The slot exists, and the publication does not.
    """
    on_source = services.source(capture.source).capture(capture)
    kept, sent = on_source.kept_log, on_source.sent_tables
    if kept is None or sent is None or not kept.exists() or sent.exists():
        return
    if services.connect.connector(capture.connector) is not None:
        return
    if _was_captured_here(services, capture):
        return
    drop = on_source.removal(None, last=True)[0]
    raise CaptureError(
        f"slot {capture.slot} of source {capture.source} exists, but {sent.title} does not, this"
        f" Kafka Connect has no connector {capture.connector}, and the state store has never had"
        " this capture: the slot can be another tool's",
        remedy="If that slot is not yours, leave it, and set another slot for source"
        f" {capture.source}. If it is left of an earlier capture, and nothing reads it any more,"
        f" run on the server: {drop} Then run the command again.",
        connector=capture.connector,
        field=f"sources.{capture.source}.slot",
    )


def _refuse_other_publication(services: Services, capture: CaptureNames) -> None:
    """Check that no other installation uses the publication of a capture that is new here.

    If the other installation has another slot, only the publication shows the other installation.
    Each installation would remove the other installation's tables from the publication. An
    installation that offboards its last table would drop the publication.

    The check passes if somebody can have made the publication for this installation: the capture's
    slot exists as well, or no slot exists that could belong to another installation.

    Raises:
        CaptureError: The publication has tables, the slot does not exist, and a slot exists that no
            capture of this installation has.
    """
    on_source = services.source(capture.source).capture(capture)
    kept, sent = on_source.kept_log, on_source.sent_tables
    if kept is None or sent is None or kept.exists() or not (tables := sent.tables()):
        return
    if services.connect.connector(capture.connector) is not None:
        return
    if _was_captured_here(services, capture):
        return
    records = (*services.store.tables(), *services.store.builds())
    ours = {one.names.slot for one in captures_of(services.config, records)}
    others = [slot for slot in kept.others() if slot not in ours]
    if not others:
        return
    drop = on_source.removal(None, last=True)[-1]
    raise CaptureError(
        f"{sent.title} of source {capture.source} already has {listed(tables)}, slot {capture.slot}"
        f" does not exist, and slot {listed(others)} can be that of another installation, which"
        " captures by the same publication",
        remedy="If that publication is not yours, leave it, and give this installation names of its"
        f" own: set other slot, publication and topic_prefix for source {capture.source}, or name"
        " the source otherwise. If it was made for this installation, make the slot as well, by the"
        " statement that `tributary onboard --dry-run` prints. If nothing needs it any more, run on"
        f" the source: {drop} Then run the command again.",
        connector=capture.connector,
        field=f"sources.{capture.source}.publication",
    )


def refuse_other_database(
    services: Services, capture: CaptureNames, wanted: Mapping[str, str]
) -> None:
    """Check that a capture new to this installation has no connector that reads another database.

    A connector that reads another database belongs to another installation with the same names.
    Compared with this installation's database, the capture would look lost. The command would then
    delete the other installation's connector and its offsets.

    Args:
        services: The services of the command.
        capture: The capture.
        wanted: The connector's settings, as the configuration file gives them.

    Raises:
        CaptureError: A connector with the capture's name exists, and reads another database.
    """
    running = services.connect.connector(capture.connector)
    if running is None or _was_captured_here(services, capture):
        return
    there, here = read_server(running), read_server(wanted)
    if there is None or there == here:
        return
    raise CaptureError(
        f"connector {capture.connector} already exists in this Kafka Connect and reads {there}, but"
        f" source {capture.source} is {here}, and its state store has never had this capture:"
        " another installation can have captured that database with the same names",
        remedy="If that connector is not yours, leave it, and give this installation names of its"
        f" own: set other slot, publication and topic_prefix for source {capture.source}, or name"
        " the source otherwise. If it is an earlier connector of yours, which nothing needs any"
        " more, delete it in Kafka Connect, then run the command again.",
        connector=capture.connector,
        field=f"sources.{capture.source}",
    )


def _refuse_other_server(services: Services, capture: CaptureNames) -> None:
    """Check that no other server's changes come to the topics of a capture without a connector.

    Two environments with the same names can share Kafka, but neither Kafka Connect nor a database.
    Then only the heartbeats show the other environment, since they name their server. Only
    heartbeats of PostgreSQL can be compared with the source's server. The check passes if the
    newest heartbeat is of the source's own server. It also passes if this installation has had the
    capture before, because the capture's former connectors have written to the topics.

    Raises:
        CaptureError: The newest heartbeat in Kafka is fresh, and of another server.
    """
    kept = services.source(capture.source).capture(capture).kept_log
    if kept is None or services.connect.connector(capture.connector) is not None:
        return
    if _was_captured_here(services, capture):
        return
    topic, bound_s = capture.heartbeat_topic, _heartbeat_bound_s(services, capture)
    sent = services.kafka.newest_times([topic]).get(topic)
    if sent is None or not came_lately(sent, bound_s):
        return
    beat = latest_heartbeat(services.kafka, services.schemas, capture)
    here = services.source(capture.source).identity().system_identifier
    if beat is None or here is None or beat.system_identifier == here:
        return
    age_s = max((datetime.now(timezone.utc) - sent).total_seconds(), 0.0)
    raise CaptureError(
        f"topic {topic} has a heartbeat of server {beat.system_identifier}, of {age_s:.0f} s ago,"
        f" but source {capture.source} is server {here}, and this Kafka Connect has no connector"
        f" {capture.connector}: another installation can write the changes of another database to"
        " the same topics",
        remedy="If those heartbeats are not of yours, give this installation topics of its own:"
        f" set another topic_prefix for source {capture.source}, or name the source otherwise. If"
        " they are of an earlier connector of yours, delete it, and wait until its newest heartbeat"
        f" is {bound_s:.0f} s old, then run the command again.",
        connector=capture.connector,
        field=f"sources.{capture.source}.topic_prefix",
    )


def _heartbeat_bound_s(services: Services, capture: CaptureNames) -> float:
    """Return the seconds without a heartbeat after which a capture counts as silent."""
    return silence_bound_s(services.config.source(capture.source).heartbeat_interval_ms)


def _was_captured_here(services: Services, capture: CaptureNames) -> bool:
    """Whether this installation has had this capture.

    If so, a fresh heartbeat can come from this installation itself.
    """
    there = (capture.source, capture.tier)
    return (
        # `onboard` leaves this look before it creates the publication.
        KeptTypeLooks(services.store).of(capture.connector) is not None
        or any((one.table.source, one.tier) == there for one in services.store.tables())
    )


def _other_reader_error(capture: CaptureNames, what: str, then: str) -> CaptureError:
    """Return a command's error for a capture whose slot another installation can be reading."""
    return CaptureError(
        f"slot {capture.slot} of source {capture.source} {what}, and this Kafka Connect has no"
        f" connector {capture.connector}: another installation can have captured this database with"
        " the same names",
        remedy="If that reader is not yours, leave it, and give this installation names of its"
        f" own: set other slot, publication and topic_prefix for source {capture.source}, or name"
        f" the source otherwise. If it is an earlier connector of yours, {then}, then run the"
        " command again.",
        connector=capture.connector,
        field=f"sources.{capture.source}.slot",
    )


def refuse_shared_topics(services: Services, group: Group) -> dict[TableId, CaptureError]:
    """For each new table of a group, return an error if another table would share its topic."""
    known = users_of(services, group.capture)
    collisions = topic_collisions(group.capture.topic_prefix, known | set(group.tables))
    refused: dict[TableId, CaptureError] = {}
    for topic, members in collisions.items():
        for table in members:
            if table in group.tables and table not in known:
                others = ", ".join(str(other) for other in members if other != table)
                refused[table] = CaptureError(
                    f"table {table} and {others} would both write to topic {topic}",
                    remedy="Give one of them another tier (tables: <name>: tier: ...), or rename"
                    " it on the source.",
                    table=table,
                    topic=topic,
                )
    return refused


def other_tier(config: Config, record: TableRecord) -> StateError | None:
    """Return an error that advises ``tributary move`` if settings and record differ in tier."""
    now, wanted = configured_tier(record.tier), config.table_settings(record.table).tier
    if now == wanted:
        return None
    return StateError(
        f"table {record.table} is on the plan in tier {now}, but its settings have tier {wanted}",
        remedy=f"Run `tributary move {record.table}`, which takes it to tier {wanted}; or set"
        f" tier: {now} for the table.",
        table=record.table,
        field="tier",
    )


def unfinished_move(config: Config, record: TableRecord) -> StateError | None:
    """Return the error of `other_tier`, or an error if a ``tributary move`` is not complete."""
    if (error := other_tier(config, record)) is not None or record.other is None:
        return error
    return StateError(
        f"table {record.table} is in tier {configured_tier(record.tier)}, and has not left the"
        f" capture of tier {configured_tier(record.other.tier)} yet",
        remedy=f"Run `tributary move {record.table}`, which completes the move.",
        table=record.table,
        field="tier",
    )
