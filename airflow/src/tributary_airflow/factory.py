"""Makes the DAGs of an installation from its tributary.yaml.

The parsing of DAGs reads only this file: it uses no network, database or other process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from tributary_airflow.assets import DEFAULT_NAME
from tributary_airflow.hook import DEFAULT_CONNECTION
from tributary_airflow.layout import Layout, TablePlan, read, slug_of
from tributary_airflow.operators import (
    TributaryCheckOperator,
    TributaryChecksOperator,
    TributaryMaintenanceOperator,
    TributaryOnboardOperator,
    TributaryRunOperator,
    TributaryVerdictOperator,
    TributaryVerifyOperator,
)
from tributary_airflow.tables import TributaryPeriodsOperator, TributaryTableOperator

Schedule = str | timedelta | None
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SHORTEST = timedelta(minutes=1)
RUN = "run"


@dataclass(frozen=True)
class Schedules:
    """When the DAGs run; a DAG with the schedule None runs only by hand.

    Args:
        tiers: The schedules of the tiers' DAGs, by tier. The DAG of any other tier runs twice
            within the tier's shortest freshness target.
        onboarding: The schedule of the DAG that copies new tables, continues interrupted copies,
            and copies tables again that need it.
        checks: The schedule of the DAG that executes the due checks of the data.
        maintenance: The schedule of the DAG that compares tables with the source, and removes
            generations that no reader needs.
    """

    tiers: Mapping[str, Schedule] = field(default_factory=dict)
    onboarding: Schedule = "15 3 * * *"
    checks: Schedule = "*/10 * * * *"
    maintenance: Schedule = "45 4 * * *"


@dataclass(frozen=True)
class Choices:
    """What the DAGs do beyond tributary.yaml.

    Args:
        tables: Tables that get tasks of their own although only a pattern of tributary.yaml matches
            them.
        onboard: Names and wildcards to onboard; the tables with tasks of their own by default.
        copy_again: Whether the onboarding DAG copies tables again that need it.
        verify_seconds: The budget of each table's comparison, in seconds.
        retries: How often a task is tried again.
        retry_delay: The pause before each retry.
    """

    tables: Sequence[str] = ()
    onboard: Sequence[str] = ()
    copy_again: bool = True
    verify_seconds: int = 600
    retries: int = 2
    retry_delay: timedelta = timedelta(minutes=1)


def tributary_dags(
    config: str | Path,
    *,
    name: str = DEFAULT_NAME,
    conn_id: str = DEFAULT_CONNECTION,
    schedules: Schedules | None = None,
    choices: Choices | None = None,
) -> dict[str, DAG]:
    """Return the DAGs of an installation by their ids; a DAG file puts them into its globals.

    Args:
        config: Path of tributary.yaml on the machine that parses DAGs.
        name: The installation; ids of DAGs and names of assets begin with it.
        conn_id: The connection that names where `tributary` is on the workers.
        schedules: When the DAGs run.
        choices: What they do beyond tributary.yaml.

    Raises:
        LayoutError: DAGs cannot be made of the file.
    """
    chosen = choices or Choices()
    layout = read(config, chosen.tables, chosen.onboard)
    maker = _Maker(name, conn_id, schedules or Schedules(), chosen, layout)
    made = [maker.onboarding(), *map(maker.tier, maker.tiers), maker.checks(), maker.maintenance()]
    return {dag.dag_id: dag for dag in made}


@dataclass(frozen=True)
class _Maker:
    name: str
    conn_id: str
    schedules: Schedules
    choices: Choices
    layout: Layout

    @property
    def plans(self) -> tuple[TablePlan, ...]:
        """The tables with tasks of their own."""
        return self.layout.tables

    @property
    def tiers(self) -> list[str]:
        """The tiers of tables and of patterns, and those that have a schedule."""
        return sorted({*self.layout.targets, *self.schedules.tiers})

    def onboarding(self) -> DAG:
        """The DAG that onboards new tables, and copies tables again that need it."""
        wanted = list(self.choices.onboard) or [str(plan.table) for plan in self.plans]
        with self._dag("onboarding", self.schedules.onboarding) as dag:
            if wanted:
                TributaryOnboardOperator(
                    task_id="onboard",
                    tables=wanted,
                    copy_again=self.choices.copy_again,
                    conn_id=self.conn_id,
                )
        return dag

    def tier(self, tier: str) -> DAG:
        """The DAG of one tier: a run, its verdict, and tasks for each table and its periods."""
        plans = [plan for plan in self.plans if plan.tier == tier]
        with self._dag(f"tier_{tier}", self._cadence(tier)) as dag:
            run = TributaryRunOperator(task_id=RUN, tier=tier, hands_on=True, conn_id=self.conn_id)
            verdict = TributaryVerdictOperator(
                task_id="verdict",
                run_task_id=RUN,
                own=[str(plan.table) for plan in plans],
                retries=0,
            )
            run >> verdict
            for plan in plans:
                self._of_table(run, plan)
        return dag

    def _of_table(self, run: TributaryRunOperator, plan: TablePlan) -> None:
        table, slug = str(plan.table), slug_of(str(plan.table))
        common: dict[str, Any] = {"table": table, "conn_id": self.conn_id, "name": self.name}
        run >> TributaryTableOperator(task_id=f"table_{slug}", run_task_id=RUN, **common)
        if plan.periods is not None:
            run >> TributaryPeriodsOperator(task_id=f"periods_{slug}", **common)

    def _cadence(self, tier: str) -> Schedule:
        if tier in self.schedules.tiers:
            return self.schedules.tiers[tier]
        return max(SHORTEST, timedelta(seconds=self.layout.targets[tier] / 2))

    def checks(self) -> DAG:
        """The DAG that executes the checks of the data that are due."""
        with self._dag("checks", self.schedules.checks) as dag:
            TributaryChecksOperator(task_id="data", conn_id=self.conn_id)
        return dag

    def maintenance(self) -> DAG:
        """The DAG that runs `tributary check`, compares tables, and removes old generations."""
        with self._dag("maintenance", self.schedules.maintenance, max_active_tasks=1) as dag:
            TributaryCheckOperator(task_id="check", conn_id=self.conn_id)
            tables = [str(plan.table) for plan in self.plans]
            for table in tables:
                TributaryVerifyOperator(
                    task_id=f"verify_{slug_of(table)}",
                    tables=[table],
                    max_seconds=self.choices.verify_seconds,
                    go_on=True,
                    conn_id=self.conn_id,
                )
            if tables:
                TributaryMaintenanceOperator(
                    task_id="generations", tables=tables, conn_id=self.conn_id
                )
        return dag

    def _dag(self, what: str, schedule: Schedule, **more: Any) -> DAG:
        return DAG(
            dag_id=f"{self.name}_{what}",
            schedule=schedule,
            start_date=START,
            catchup=False,
            max_active_runs=1,
            tags=["tributary", self.name],
            default_args={"retries": self.choices.retries, "retry_delay": self.choices.retry_delay},
            **more,
        )
