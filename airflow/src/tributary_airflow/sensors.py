"""Sensors for fresh tables and for complete periods; a deferred sensor occupies no worker."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from tributary_airflow.hook import DEFAULT_CONNECTION, TributaryHook
from tributary_airflow.outcome import Judged, Verdict
from tributary_airflow.raising import raise_verdict
from tributary_airflow.triggers import (
    BOUND_S,
    CompletenessTrigger,
    FreshnessTrigger,
    TributaryTrigger,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class TributarySensor(BaseSensorOperator):
    """Waits for an answer of `tributary`.

    Args:
        conn_id: The connection that names where `tributary` is.
        deferrable: Whether the triggerer asks; if False, a worker asks, by the sensor's ``mode``.
        question_timeout: Maximum duration of one question, in seconds.
    """

    def __init__(
        self,
        *,
        conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool = True,
        question_timeout: float = BOUND_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.deferrable = deferrable
        self.question_timeout = question_timeout
        self._hook: TributaryHook | None = None

    @abstractmethod
    def trigger(self, program: dict[str, Any]) -> TributaryTrigger:
        """Return the trigger that asks in place of the sensor."""

    def execute(self, context: Context) -> None:
        """Let the triggerer ask, or ask in this process."""
        if not self.deferrable:
            super().execute(context)
            return
        program = TributaryHook(self.conn_id).get_conn().to_json()
        self.defer(
            trigger=self.trigger(program),
            method_name="answered",
            timeout=timedelta(seconds=self.timeout),
        )

    def answered(self, context: Context, event: dict[str, Any] | None = None) -> None:
        """End the sensor by the answer of the trigger.

        Raises:
            AirflowFailException: Waiting cannot help: a person must act first.
            AirflowException: Too many questions in a row had errors.
        """
        found = event or {"verdict": Verdict.RETRY, "message": "the trigger gave no answer"}
        raise_verdict(Judged(Verdict(found["verdict"]), found["message"]))

    def poke(self, context: Context) -> bool:
        """Ask once; return whether the sensor need not wait longer."""
        self._hook = TributaryHook(self.conn_id)
        asked = self.trigger(self._hook.get_conn().to_json())
        judged, waiting = asked.judge(self._hook.run(*asked.words))
        if waiting:
            self.log.info(waiting)
            return False
        raise_verdict(judged)
        return True

    def on_kill(self) -> None:
        """End the command of the task, since the task is killed."""
        if self._hook is not None:
            self._hook.stop()

    @property
    def _polling(self) -> dict[str, float]:
        pause = self.poke_interval
        seconds = pause.total_seconds() if isinstance(pause, timedelta) else float(pause)
        return {"poll_s": seconds, "bound_s": self.question_timeout}


class TributaryCompletenessSensor(TributarySensor):
    """Waits until an hour or a day of a table is complete.

    Args:
        table: The table.
        period: Name of the period, such as ``{{ data_interval_start.strftime('%Y-%m-%dT%H') }}``.
    """

    template_fields: Sequence[str] = ("table", "period")

    def __init__(self, *, table: str, period: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.period = period

    def trigger(self, program: dict[str, Any]) -> CompletenessTrigger:
        """Return the trigger that asks for the period."""
        return CompletenessTrigger(self.table, self.period, program=program, **self._polling)


class TributaryFreshnessSensor(TributarySensor):
    """Waits until tables are fresh.

    Args:
        tables: Names and wildcards; none for all tables.
        tier: Only tables of this tier.
        max_age: Maximum ``freshness_s`` of a table, in seconds; None for each table's own target.
    """

    template_fields: Sequence[str] = ("tables", "tier")

    def __init__(
        self,
        *,
        tables: Sequence[str] = (),
        tier: str | None = None,
        max_age: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)
        self.tier = tier
        self.max_age = max_age

    def trigger(self, program: dict[str, Any]) -> FreshnessTrigger:
        """Return the trigger that asks for the freshness."""
        return FreshnessTrigger(
            self.tables, self.tier, self.max_age, program=program, **self._polling
        )
