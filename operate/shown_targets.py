"""The freshness targets that ``status`` and metrics show as missed or as impossible to keep."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.run.predictions import Predictions
from cdc.store.table_state import State
from operate.server_answers import end_offsets
from operate.targets import of_tables, shortfalls_now
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.server_answers import Answers
    from operate.targets import Shortfall
    from schemas.table import TableId

_log = logging.getLogger(__name__)


def shown_shortfalls(
    answers: Answers,
    plan_records: Sequence[TableRecord],
    shown: Mapping[TableId, tuple[int | None, bool]],
    now: datetime,
) -> list[Shortfall]:
    """Return the freshness targets of the shown tables that are missed or cannot be kept.

    The load of the workers includes all tables on the plan, also tables that are not shown.

    Args:
        answers: Asks the servers.
        plan_records: The records of all tables on the plan.
        shown: For each shown table, how many offsets the lake is behind (None if not known), and
            whether the table is late.
        now: The time, by the state store's clock.
    """
    services = answers.services
    others = [
        record
        for record in plan_records
        if record.table not in shown and record.state is State.INCREMENTAL
    ]
    ends, trouble = end_offsets(answers, others) if others else ({}, None)
    if trouble is not None:
        _log.warning("the targets of other tables are judged by their last commits: %s", trouble)
    late = {table for table, (behind, is_late) in shown.items() if is_late and behind}
    whole = {table for table, (behind, _) in shown.items() if behind == 0}
    whole |= {record.table for record in others if _has_all_of(record, ends.get(record.topic))}
    config, predictions = services.config, Predictions(services.store)

    def fresh_at(record: TableRecord) -> float:
        if record.table in late:
            return -math.inf
        is_known = record.table in shown or record.table in whole
        return math.inf if is_known else predictions.fresh_at(record)

    def look() -> list[Shortfall]:
        for table in whole:
            predictions.note_whole(table, now.timestamp())
        return shortfalls_now(config, services.kafka, predictions, plan_records, fresh_at, now)

    try:
        return of_tables(answers.within("freshness targets", look), shown)
    except TributaryError as error:
        _log.warning("freshness targets could not be checked: %s", error)
        return []


def _has_all_of(record: TableRecord, ends: Mapping[int, int] | TributaryError | None) -> bool:
    """Whether a table in the lake has all records of its topic, whose end offsets are ``ends``."""
    return isinstance(ends, Mapping) and record.applied_offsets == {**ends}
