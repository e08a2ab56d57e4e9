"""Finds captures that send changes although the state store has lost their tables.

A state store that was restored from a backup lacks the tables that were onboarded later. Then a
capture sends changes of tables that are not on the plan (`cdc.capture.unneeded_tables`), or no
table on the plan needs the capture at all. If the state store has no record at all, see
`operate.empty_store`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import CapturedTables, captures_of
from cdc.capture.onboarded_names import names_of
from cdc.capture.unneeded_tables import of_unneeded
from operate.empty_store import configured_captures
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.capture.unneeded_tables import Forgotten
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from operate.server_answers import Answers

_log = logging.getLogger(__name__)


def without_tables(
    config: Config, answers: Answers, records: Collection[TableRecord]
) -> list[CaptureNames]:
    """Return the captures that have a connector, and that no table on the plan needs.

    The result is empty if there is no record at all.

    Args:
        config: The configuration, whose tiers name the captures that tables could have.
        answers: Asks Kafka Connect, within a limited time.
        records: The records of all tables and of their next generations.

    Raises:
        TributaryError: Kafka Connect does not answer.
    """
    needed = {one.names.connector for one in captures_of(config, records)}
    former = (
        names_of(config, record.table.source, one)
        for record in records
        if record.table.source in config.sources
        for one in record.captures
    )
    known = {one.connector: one for one in (*configured_captures(config), *former)}
    if not records or needed >= known.keys():
        return []
    there = answers.connectors()
    return [one for name, one in known.items() if name in there and name not in needed]


def also_captured(services: Services, answers: Answers) -> list[CapturedTables]:
    """Return the captures that `without_tables` finds, for ``check`` and ``status``.

    The result is empty if Kafka Connect does not answer. The two commands report the missing answer
    in another line.

    Raises:
        StateError: The state store cannot be used.
    """
    records = (*services.store.tables(), *services.store.builds())
    try:
        return [*map(CapturedTables, without_tables(services.config, answers, records))]
    except TributaryError as error:
        _log.info("captures without tables were not searched for: %s", error)
        return []


def forgotten_tables(
    services: Services, answers: Answers, records: Collection[TableRecord]
) -> list[Forgotten]:
    """Return, for ``run``, what captures send although the state store has lost their tables.

    Args:
        services: The services of the command. The command's runs have already examined the
            tables' captures.
        answers: Asks Kafka Connect, within a limited time.
        records: The records of the command's tables.

    Raises:
        TributaryError: Kafka Connect does not answer.
        StateError: The state store cannot be used.
    """
    config, store, seen = services.config, services.store, services.run_context.forgotten
    found = [seen.get(one.names.resource) for one in captures_of(config, records)]
    everything = [*store.tables(), *store.builds()]
    for names in without_tables(config, answers, everything):
        evidence = services.stream_evidence(names)
        found.append(of_unneeded(store, evidence, everything).forgotten)
    return [one for one in found if one is not None]
