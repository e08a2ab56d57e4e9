"""``check``: checks everything that onboarding and runs need; each problem has a remedy.

If the state store cannot be used, the checks of tables, captures and slots are left out. If Spark's
cluster cannot be used, the checks that need Spark are left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cdc.capture.captured_tables import captures_of
from cdc.capture.judgement import of_capture, of_stream, of_table
from cdc.capture.log_limits import over_limit
from cdc.capture.onboarded_names import require_as_onboarded
from cdc.capture.remembered_losses import loss_scopes, of_remembered_losses
from cdc.capture.unneeded_tables import of_unneeded
from cdc.config.tables import configured_tier
from cdc.connect import INSTALLATION
from cdc.errors import LakeError, SourceError
from cdc.sources.selection import require_named
from cdc.sources.source_facts import Check
from cdc.sources.views import wants_exact_view
from cdc.store.loss_counts import Losses
from cdc.store.table_state import State, TableRecord
from operate import check_kafka
from operate.capture_names import unfinished_move
from operate.check_tls import unprotected
from operate.empty_store import empty_store
from operate.engine_limits import EngineLimits, partition_limits
from operate.forgotten_tables import also_captured
from operate.lake_storage import folder_here
from operate.plugin_version import plugin_check
from operate.readiness import judge
from operate.readiness_check import nulls_are_kept
from operate.server_answers import Answers
from operate.tier_capture import wanted_connector
from operate.transactions import SET_ON_WORKERS
from operate.unused_slots import unused_slots
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.captured_tables import CapturedTables
    from cdc.capture.evidence import CaptureEvidence
    from cdc.capture.log_limits import OverLimit
    from cdc.config import Config
    from cdc.config.lake import CatalogConfig
    from cdc.debezium import CaptureNames
    from cdc.sources.log_health import LogHealth
    from operate.context import Services

Gather = Callable[["CaptureNames"], "CaptureEvidence"]
Status = Literal["ok", "note", "warning", "error"]

OLDEST_CONNECT = (3, 3)
"""The oldest accepted version of Kafka Connect, the first with exactly-once sources."""


def check(services: Services) -> Iterator[Check]:
    """Execute all checks; yield the lines of output of each check as soon as it is done."""
    yield from _checks_or_error("state store", partial(state_store, services))
    yield from unprotected(services.config)
    records: list[TableRecord] = []
    try:
        records = [r for r in services.store.tables() if r.state is not State.RETIRED]
    except TributaryError:  # the line before has the reason
        for name in services.config.sources:
            yield from _checks_or_error(f"source {name}", partial(_source_checks, services, name))
        yield from _of_kafka(services)
        yield from of_spark_and_lake(services)
        return
    yield from _checks_or_error("state store: tables", partial(_no_tables, services))
    yield from _unused_tiers(services.config, records)
    evidence = cache(services.stream_evidence)
    for name in services.config.sources:
        yield from _checks_or_error(f"source {name}", partial(_source_checks, services, name))
        tables = partial(_table_checks, services, name, records, evidence)
        yield from _checks_or_error(f"source {name}: tables", tables)
        yield from _checks_or_error(f"source {name}: slots", partial(_slots, services, name))
    yield from _of_kafka(services)
    captured = captures_of(services.config, records)
    for one in (*captured, *also_captured(services, Answers(services))):
        yield from _checks_or_error(
            f"capture {one.names.source}/{one.names.tier}",
            partial(_capture, services, evidence(one.names), one, records),
        )
    with services.reused_sessions(record.table.source for record in records):
        for record in records:
            look = partial(check_kafka.topic, services, record)
            yield from _checks_or_error(f"topic {record.topic}", look)
    yield from of_spark_and_lake(services)


def _of_kafka(services: Services) -> Iterator[Check]:
    """Execute the checks of Kafka, Connect and the schema registry; yield the lines of output."""
    yield from _checks_or_error("Kafka", partial(check_kafka.cluster, services))
    yield from _checks_or_error("Connect", partial(_connect_checks, services))
    yield from _checks_or_error("schema registry", partial(_registry_checks, services))


def of_spark_and_lake(services: Services) -> Iterator[Check]:
    """Execute the checks of Spark's cluster, of the lake and of the metastore; yield the lines."""
    config = services.config
    usable = True
    if not config.spark.local:
        lines = _checks_or_error("Spark", partial(_executors, services))
        usable = all(line.status != "error" for line in lines)
        yield from lines
    if usable or folder_here(config, config.lake.url) is not None:
        yield from _checks_or_error("lake", partial(lake, services))
    if usable and config.catalog is not None:
        yield from _checks_or_error("catalog", partial(_catalog, services, config.catalog))


def _checks_or_error(name: str, look: Callable[[], Sequence[Check]]) -> Sequence[Check]:
    """Execute a part of ``check``; return its lines of output, or one line about its error.

    Args:
        name: The name of the line that reports an error.
        look: Executes the check.
    """
    try:
        return look()
    except TributaryError as error:
        return [Check(name, "error", error.message, error.remedy)]


def state_store(services: Services) -> list[Check]:
    """Return the lines that ``check`` prints about the state store and the access to its file."""
    store = services.store
    lines = [Check("state store", "ok", f"{store.shown_url}, {len(store.tables())} tables")]
    if (file := store.exposed) is not None:
        lines.append(
            Check(
                "state store: file",
                "warning",
                f"other users of this machine can read {file}, which holds quarantined messages"
                " with all columns",
                f"Its owner runs `chmod 600 {file}`.",
            )
        )
    return lines


def _no_tables(services: Services) -> list[Check]:
    """Return a line if the state store has no tables although the project may not be new."""
    found = empty_store(services, Answers(services))
    if found is None or (problem := found.problem) is None:
        return []
    status: Status = "error" if found.lost else "warning"
    return _single_line("state store: tables", status, problem.message, problem.remedy)


def _unused_tiers(config: Config, records: Iterable[TableRecord]) -> list[Check]:
    """Return a warning for each tier that has settings and no tables; its name may be misspelt."""
    used = {config.defaults.tier, *(settings.tier for settings in config.tables.values())}
    used |= {configured_tier(record.tier) for record in records}
    return [
        Check(
            f"tiers.{name}",
            "warning",
            "no section and no table has this tier, so its settings have no effect",
            f"Correct the name, set `tier: {name}` for tables, or remove the section.",
        )
        for name in sorted({*config.tiers} - used)
    ]


def _slots(services: Services, source: str) -> list[Check]:
    """Return a line of output for each slot of a source if no table needs the slot."""
    try:
        found = [*unused_slots(services, source)]
    except SourceError:
        return []  # the line of the source has the reason
    return [Check(one.title, "warning", one.message, one.remedy) for one in found]


def _source_checks(services: Services, name: str) -> list[Check]:
    """Return the lines that ``check`` prints about a source."""
    return services.source(name).checks()


def _table_checks(
    services: Services, source: str, records: Sequence[TableRecord], evidence: Gather
) -> list[Check]:
    """Return the lines that ``check`` prints about a source's tables."""
    planned = {one.table: one for one in records if one.table.source == source}
    there = frozenset(services.source(source).table_names())
    lines: list[Check] = []
    with services.reused_sessions([source]):
        for table in sorted(planned):
            exists = table in there
            look = partial(_planned_table, services, planned[table], evidence, exists=exists)
            lines += _checks_or_error(f"table {table}", look)
    lines.append(
        Check(
            f"source {source}: tables",
            "ok",
            f"{len(there)} found, {len(planned)} on the plan; `tributary discover` shows which of"
            " the others can be onboarded",
        )
    )
    return lines


def _planned_table(
    services: Services, record: TableRecord, evidence: Gather, *, exists: bool
) -> list[Check]:
    """Return the line that ``check`` prints about a table on the plan.

    ``exists`` is whether the source has the table.
    """
    table = record.table
    name = f"table {table}"
    if not exists:
        return _single_line(
            name,
            "error",
            "it is on the plan, but the source does not have it",
            f"Run `tributary offboard {table}` if the table is gone for good.",
        )
    require_as_onboarded(services.config, record)
    source = services.source(table.source)
    described, names = source.table(table), services.capture_of(record)
    capture = source.capture(names)
    if missing := capture.missing_rights(described):
        return _single_line(name, "error", *missing)
    settings = services.config.table_settings(table)
    kept = nulls_are_kept(services, table, settings)
    verdict = judge(described, settings, nulls_are_kept=kept)
    if not verdict.ok:
        return _single_line(name, "error", verdict.problem, verdict.remedy)
    require_named(described, settings)
    schema = source.schema(described, settings)
    obstacles = capture.audit_table(described)
    findings = of_table(evidence(names), table, obstacles, record)
    findings += of_stream(record, evidence(names), source)
    losses = Losses(services.store).seen(*loss_scopes(names, table))
    findings += of_remembered_losses(losses, names, record)
    if findings:
        problems = "; ".join(finding.message for finding in findings)
        return _single_line(name, "error", problems, findings[0].remedy)
    if (move := unfinished_move(services.config, record)) is not None:
        return _single_line(name, "warning", move.message, move.remedy)
    key = ", ".join(settings.key_columns or described.primary_key)
    known = described.replica_identity
    identity = "whole rows" if known is None else f"replica identity {known}"
    detail = f"key ({key}), {identity}"
    if wants_exact_view(source, settings):
        from_primary = settings.snapshot_from == "primary"
        obstacle = source.exact_view_obstacle(from_primary=from_primary)
        if obstacle is not None:
            return _single_line(
                name, "warning", f"the next copy or verify will fail: {obstacle[0]}", obstacle[1]
            )
        if settings.appends:
            detail = "an append table: inserted rows only"
    limits = EngineLimits()
    if services.config.catalog is not None:
        limits = partition_limits(schema, settings.partition_by)
    if limits.problem:
        return _single_line(name, "warning", limits.problem, limits.remedy)
    if notes := (*verdict.notes, *limits.notes):
        return _single_line(name, "note", "; ".join((detail, *notes)))
    return _single_line(name, "ok", detail)


def _single_line(name: str, status: Status, detail: str, remedy: str = "") -> list[Check]:
    """Return one line that ``check`` prints, as a list."""
    return [Check(name, status, detail, remedy)]


def _connect_checks(services: Services) -> list[Check]:
    """Return the lines that ``check`` prints about Kafka Connect's workers."""
    worker = services.connect.worker()
    lines = [_version_line("Connect", worker.version, OLDEST_CONNECT)]
    kinds = sorted({source.kind for source in services.config.sources.values()})
    lines += [plugin_check(worker.plugins, kind) for kind in kinds]
    if lines[0].status == "error" or worker.exactly_once is None:
        return lines
    lines.append(_exactly_once_line(services, worker.exactly_once))
    if services.config.connect.username is None:
        lines.append(
            Check(
                "Connect: login",
                "warning",
                "it requires no login: anyone who reaches it can read what its ConfigProviders can",
                "Set rest.extension.classes on its workers, and connect.username and"
                " connect.password here.",
            )
        )
    cluster, _ = services.kafka.ping()
    if worker.kafka_cluster_id and worker.kafka_cluster_id != cluster:
        lines.append(
            Check(
                "Connect: cluster",
                "error",
                f"the worker writes to Kafka cluster {worker.kafka_cluster_id}, not to {cluster}",
                "Set connect.url and kafka.bootstrap_servers to the same Kafka cluster.",
            )
        )
    return lines


def _exactly_once_line(services: Services, enabled: bool | None) -> Check:
    """Return the line that ``check`` prints about a worker's support for exactly-once sources."""
    name, wanted = "Connect: exactly-once", services.config.connect.exactly_once
    if enabled:
        return Check(name, "ok", "source support is enabled")
    remedy = SET_ON_WORKERS
    if wanted:
        return Check(
            name,
            "error",
            "connect.exactly_once is true, but the worker has no exactly-once source support",
            f"{remedy} Or set connect.exactly_once: false: a crash of a worker then repeats events,"
            " which the lake applies only once (its limit: docs/guarantees.md).",
        )
    return Check(name, "warning", "it is off: a crash of a worker repeats events", remedy)


def _version_line(name: str, version: str, oldest: tuple[int, int]) -> Check:
    """Return the line that ``check`` prints about a version, which must not be below ``oldest``."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == len(oldest) and numbers < oldest:
        return Check(
            name,
            "error",
            f"version {version}",
            f"Upgrade to {'.'.join(map(str, oldest))} or later.",
        )
    return Check(name, "ok", f"version {version}")


def _registry_checks(services: Services) -> list[Check]:
    """Return the line that ``check`` prints about the schema registry."""
    services.registry.ping()
    return [Check("schema registry", "ok", services.config.kafka.registry.url)]


def _capture(
    services: Services,
    evidence: CaptureEvidence,
    of: CapturedTables,
    before: Sequence[TableRecord],
) -> list[Check]:
    """Return the lines that ``check`` prints about a capture's problems, log and connector.

    Args:
        services: The services of the command.
        evidence: The capture's evidence.
        of: The capture and its tables.
        before: The records of the tables on the plan, as they were read before the evidence was
            gathered.
    """
    capture = evidence.names
    findings = [of.attributed(finding) for finding in of_capture(evidence)]
    lines = [Check(one.subject, "error", one.message, one.remedy) for one in findings]
    unneeded = of_unneeded(services.store, evidence, before)
    if (lost := unneeded.forgotten) is not None:
        place = f"capture {capture.source}/{capture.tier}"
        lines.append(Check(place, "error", lost.message, lost.remedy))
    if (more := unneeded.renamed) is not None:
        lines.append(Check(more.subject, "warning", more.message, more.remedy))
    log, connector = evidence.log, evidence.connector_facts
    if not isinstance(log, TributaryError) and log.title not in {line.name for line in lines}:
        limits = services.config.source(capture.source).log_limits
        over = over_limit(capture, log, limits)
        lines.insert(0, _log_line(log) if over is None else _too_much(over))
    if connector is None:
        return lines
    wrong = {finding.property for finding in connector.wrong}
    lines += _other_settings(services, capture, connector.effective, wrong)
    if connector.running and f"connector {capture.connector}" not in {one.name for one in lines}:
        lines.append(Check(f"connector {capture.connector}", "ok", "running"))
    return lines


def _too_much(over: OverLimit) -> Check:
    """Return the line that ``check`` prints about a capture that holds back too much log."""
    status: Status = "error" if over.alarms else "warning"
    return Check(over.title, status, over.message, over.remedy)


def _log_line(log: LogHealth) -> Check:
    """Return the line that ``check`` prints about the log that a source keeps for a capture."""
    kept = f"{(log.retained_bytes or 0) / 2**20:,.0f} MiB of log kept"
    if log.active is None:
        return Check(log.title, "ok", kept)
    if log.active:
        return Check(log.title, "ok", f"being read, {kept}")
    idle = "Check that the connector runs; the log grows meanwhile."
    return Check(log.title, "warning", f"not being read, {kept}", idle)


def _other_settings(
    services: Services,
    capture: CaptureNames,
    effective: Mapping[str, str],
    reported: Collection[str],
) -> list[Check]:
    """Return a warning that names the settings of a connector that differ from the configuration.

    The warning does not contain values, since these can be secrets. The result is empty if no
    setting differs.

    Args:
        services: The services of the command.
        capture: The capture.
        effective: The settings with which the connector runs.
        reported: Settings that another line of the output already names.
    """
    wanted = wanted_connector(services, capture)
    other = sorted(
        name
        for name in {*wanted, *effective}
        if wanted.get(name) != effective.get(name) and name not in (*reported, INSTALLATION)
    )
    if not other:
        return []
    return _single_line(
        f"connector {capture.connector}: settings",
        "warning",
        f"its settings differ from the configuration: {', '.join(other)}",
        "Tributary changes only sizes of a connector in use. Change the other settings in Kafka"
        " Connect, too, or change them back in the configuration.",
    )


def _executors(services: Services) -> list[Check]:
    """Check that executors start and have the driver's versions; return a line of output.

    Raises:
        ClusterError: The cluster starts no executor, an executor cannot run tasks, or a version
            differs from the driver's.
    """
    from cdc.runtime.executors import require_same_versions

    settings = services.config.spark
    found = require_same_versions(services.spark, settings.start_timeout_s)
    hosts = ", ".join(sorted({one.host for one in found}))
    versions = ", ".join(f"{part} {version}" for part, version in found[0].versions.items())
    return [Check("Spark", "ok", f"{settings.master}, executors on {hosts}, {versions}")]


def lake(services: Services) -> list[Check]:
    """Check that a file can be written to the lake and removed; return a line of output.

    Raises:
        LakeError: The lake cannot be written.
    """
    url = services.config.lake.url
    folder = folder_here(services.config, url)
    if folder is None:
        from cdc.lake.publish import probe

        probe(services.spark, url)
    else:
        _probe_lake_folder(folder, url)
    return [Check("lake", "ok", f"{url} is writable")]


def _catalog(services: Services, config: CatalogConfig) -> list[Check]:
    """Return the line that ``check`` prints about the Hive Metastore that holds table names."""
    from cdc.lake.metastore import reach

    found = reach(services.spark, config.metastore)
    return [Check("catalog", "ok", f"{config.metastore}, {found} databases")]


def _probe_lake_folder(folder: Path, url: str) -> None:
    """Raise an error of ``check`` if the folder of a lake on this machine is not writable."""
    probe = folder / f".tributary-check-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise LakeError(
            f"the lake at {url} is not writable: {error.strerror}",
            remedy="Set lake.url to a folder that the user who runs tributary can write.",
            field="lake.url",
        ) from error
