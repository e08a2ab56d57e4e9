"""Tasks of one table after the run of its tier: its result, and its complete periods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.exceptions import AirflowSkipException

from tributary_airflow import assets, command
from tributary_airflow.operators import TributaryOperator
from tributary_airflow.outcome import (
    TABLE_CONDITIONS,
    judge,
    judge_announced,
    judge_table,
    summary,
)
from tributary_airflow.raising import raise_verdict

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

KNOWN_EVENTS = 200
"""Number of an asset's newest events that are read back. Older periods are not published again."""


class TributaryTableOperator(TributaryOperator):
    """Judges a run for one table: fails if the table failed, or publishes that the table changed.

    The task is skipped, without an event, if the table had no changes, is paused or is being
    copied, or if another process works on it. A retry, also of a cleared task, runs the table
    itself, and so repairs this table alone.

    Args:
        table: The table, as ``source:schema.table``.
        run_task_id: The task that ran the table's tier.
        name: The installation, for the asset.
    """

    def __init__(
        self, *, table: str, run_task_id: str, name: str = assets.DEFAULT_NAME, **kwargs: Any
    ) -> None:
        self.changed = assets.changed(table, name)
        super().__init__(outlets=[self.changed], **kwargs)
        self.table = table
        self.run_task_id = run_task_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Judge the table's result, from the tier's run or, in a retry, from a run of the table."""
        found = context["ti"].xcom_pull(task_ids=self.run_task_id)
        if context["ti"].try_number > 1 or found is None:
            found = self._run_again()
        raise_verdict(judge_table(found, self.table))
        result = found["tables"][self.table]
        changes = {key: result[key] for key in ("commits", "events") if key in result}
        context["outlet_events"][self.changed].extra = changes
        return changes

    def _run_again(self) -> dict[str, Any]:
        # A failed table would wait until its next turn; of others, `retry` says that all is well.
        self.hook.run(*command.of_tables("retry", [self.table]))
        ran = self.hook.run(*command.run([self.table], None, TABLE_CONDITIONS))
        if "conditions" not in ran.document:
            raise_verdict(judge(ran, messages=self.messages))
        return summary(ran, messages=self.messages)


class TributaryPeriodsOperator(TributaryOperator):
    """Publishes the hours or days of a table that are newly complete, as partitions of its asset.

    The task is skipped, without an event, if the table was offboarded, or if no period is newly
    complete: Airflow makes an event of
    each successful task with an outlet. The task reads from the asset's events what was published.
    Airflow writes an event in one step with the task's success. So no period is lost or published
    twice if a task dies.

    Args:
        table: The table, as ``source:schema.table``.
        since: Name of the first period that is published while the asset has no event; None for the
            newest period.
        name: The installation, for the asset.
    """

    template_fields: Sequence[str] = ("since",)

    def __init__(
        self,
        *,
        table: str,
        since: str | None = None,
        name: str = assets.DEFAULT_NAME,
        **kwargs: Any,
    ) -> None:
        self.complete = assets.complete(table, name)
        super().__init__(inlets=[self.complete], outlets=[self.complete], **kwargs)
        self.table = table
        self.since = since

    def execute(self, context: Context) -> list[str]:
        """Run `tributary complete TABLE`, and publish what no event has yet."""
        ran = self.hook.run(*command.complete(self.table))
        raise_verdict(judge_announced(ran, self.table, messages=self.messages))
        newest = context["inlet_events"][self.complete].ascending(False).limit(KNOWN_EVENTS)
        known = published((one.partition_key, one.extra) for one in newest)
        new = unpublished(ran.document.get("periods") or (), known, self.since)
        if not new:
            raise AirflowSkipException(f"no period of table {self.table} is newly complete")
        events = context["outlet_events"][self.complete]
        events.add_partitions(sorted(new))
        events.extra = {"periods": cast("JsonValue", new)}
        self.log.info("complete: %s", ", ".join(sorted(new)))
        return sorted(new)


_FACTS = ("start", "end", "revision", "late_rows")
Periods = dict[str, dict[str, Any]]
"""Facts of periods by their names."""


def published(events: Iterable[tuple[str | None, Mapping[str, Any] | None]]) -> Periods:
    """Return the periods that events of the asset have published, with their highest revisions.

    Args:
        events: The partition and the extra of each event.
    """
    known: Periods = {}
    for key, extra in events:
        entries = (extra or {}).get("periods") or {}
        for name, facts in entries.items() if key is None else [(key, entries.get(key) or {})]:
            before = known.get(name, {}).get("revision", 0)
            if facts.get("revision", 1) > before:
                known[name] = {"revision": 1, **facts}
    return known


def unpublished(
    announced: Iterable[Mapping[str, Any]], known: Periods, since: str | None
) -> Periods:
    """Return the announced periods that are to be published.

    Args:
        announced: The periods that `tributary complete` lists, oldest first.
        known: The periods that are published.
        since: Name of the first period that is published if none is known; None for the newest
            period.
    """
    listed = [(one["period"], {key: one[key] for key in _FACTS if key in one}) for one in announced]
    if not known:
        chosen = [one for one in listed if since is not None and one[0] >= since]
        return dict(chosen if since is not None else listed[-1:])
    newest = max((facts.get("start", "") for facts in known.values()), default="")
    return {name: facts for name, facts in listed if _is_newer(facts, known.get(name), newest)}


def _is_newer(facts: Mapping[str, Any], before: Mapping[str, Any] | None, newest: str) -> bool:
    """Return whether a period is after all published ones, or has a higher revision than before."""
    if before is None:
        return bool(facts["start"] > newest)
    return bool(facts["revision"] > before["revision"])
