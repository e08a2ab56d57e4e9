"""``onboard --dry-run``: lists the statements, requests and topics of an onboarding.

The command changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from bootstrap.steps import nothing_to_copy
from cdc.store.table_state import State
from operate import tier_capture
from operate.onboard import has_complete_copy, is_to_copy, refusals
from operate.other_installations import refuse_other_lakes
from operate.readiness_check import examine_all
from operate.table_outcome import Outcome
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.debezium.names import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services

StepKind = Literal["topic", "sql", "rest", "state", "spark"]


@dataclass(frozen=True)
class PlannedStep:
    """One step that ``onboard --dry-run`` lists and that ``onboard`` would execute.

    Args:
        kind: The kind of system that would execute the step, for example ``sql`` for the source.
        where: The server, topic or store.
        text: The statement or request as it would be sent, with references in place of secrets.
    """

    kind: StepKind
    where: str
    text: str


@dataclass(frozen=True)
class Plan:
    """The steps that onboarding would take, and the tables that it would refuse.

    Args:
        steps: The steps, in the order of their execution.
        refused: The outcomes of the tables that onboarding would refuse; each would fail or be
            left out.
        accepted: The outcomes of the tables that onboarding would not refuse, also of those that
            need no step. Each has the table's state, unless the table would be copied.
    """

    steps: tuple[PlannedStep, ...]
    refused: tuple[Outcome, ...]
    accepted: tuple[Outcome, ...] = ()


def onboarding_steps(
    services: Services,
    tables: Sequence[TableId],
    *,
    with_bootstrap: bool,
    by_wildcard: Collection[TableId] = (),
    in_bulk: Collection[TableId] = (),
    again: bool = False,
) -> Plan:
    """Examine tables, and return the steps that their onboarding would take, without taking any.

    Args:
        services: The services of the command.
        tables: The tables.
        with_bootstrap: Whether the same command would also copy the tables.
        by_wildcard: The tables that only wildcards select (`SelectedTables.by_wildcard`).
        in_bulk: The tables that no argument names (`SelectedTables.in_bulk`).
        again: Whether the command would onboard also tables of ``in_bulk`` that were offboarded.
    """
    records = {record.table: record for record in services.store.tables()}
    complete = {one for one, record in records.items() if has_complete_copy(record)} & {*in_bulk}
    not_again = () if again else in_bulk
    examined = examine_all(services, tables, only_settings=complete, not_again=not_again)
    if not services.take_over:
        # No Spark is started, so only local folders are looked at.
        examined.refuse(refuse_other_lakes(services, examined.replicable, with_spark=False))
    refused = refusals(services, examined, by_wildcard)
    steps: list[PlannedStep] = []
    accepted: list[Outcome] = []
    for group in tier_capture.groups(services, examined.replicable):
        steps += _steps_of_group(services, group)
        for table in group.tables:
            record = records.get(table)
            copies = with_bootstrap and is_to_copy(record)
            steps += _steps_of_table(services, table, record, copies=copies)
            if with_bootstrap and table not in in_bulk and record and _only_runs_go_on(record):
                refused.append(Outcome(table, "bootstrap", error=nothing_to_copy(record)))
            else:
                state = None if copies or record is None else record.state
                accepted.append(Outcome(table, "planned", state))
    return Plan(tuple(steps), tuple(refused), tuple(accepted))


def _only_runs_go_on(record: TableRecord) -> bool:
    """Whether a table has failed that has a complete copy; a copy of it by name is refused."""
    return record.state is State.FAILED and has_complete_copy(record)


def _settings_of_new_topic(services: Services, names: CaptureNames, topic: str) -> dict[str, Any]:
    """Return, for a dry run, the settings with which a topic would be created."""
    return {
        "partitions": 1,
        "replication.factor": services.config.kafka.topic.replication_factor,
        **services.kafka.new_topic_settings(names.topic_config(topic)),
    }


def _steps_of_group(services: Services, group: tier_capture.Group) -> list[PlannedStep]:
    """Return a dry run's steps for the capture that the tables of one source and tier share."""
    names, source = group.capture, services.source(group.capture.source)
    wanted = tier_capture.topics(group)
    existing = services.kafka.topics(wanted)
    steps = [
        PlannedStep(
            "topic",
            name,
            f"create with {json.dumps(_settings_of_new_topic(services, names, name))}",
        )
        for name in wanted
        if name not in existing
    ]
    where = f"primary of {names.source}"
    steps += [
        PlannedStep("sql", where, f"{statement};")
        for statement in source.capture(names).planned(group.tables)
    ]
    if services.connect.connector(names.connector) is None:
        body = json.dumps(
            {
                **tier_capture.wanted_connector(services, names, group.tables),
                **services.connect.owner.mark,
            },
            indent=2,
            sort_keys=True,
        )
        path = f"PUT /connectors/{quote(names.connector, safe='')}/config"
        steps.append(PlannedStep("rest", services.config.connect.url, f"{path}\n{body}"))
    return steps


def _steps_of_table(
    services: Services, table: TableId, record: TableRecord | None, *, copies: bool
) -> list[PlannedStep]:
    """Return a dry run's steps for one table of a group: its registration and its copy."""
    steps = []
    if record is None or record.state is State.RETIRED:
        steps.append(PlannedStep("state", services.store.shown_url, f"register {table}"))
    if copies:
        path = services.config.table_path(table)
        text = f"copy {table}, hand over to the stream, publish {path}/_current.json"
        steps.append(PlannedStep("spark", f"{path}/attempt=<uuid>", text))
    return steps
