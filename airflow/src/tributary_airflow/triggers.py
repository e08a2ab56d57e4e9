"""Polls `tributary` from the triggerer until tables are fresh, or a period is complete."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tributary_airflow import command
from tributary_airflow.command import Program
from tributary_airflow.outcome import Judged, Verdict, judge_freshness, judge_period
from tributary_airflow.process import Ran, ask

ERRORS = 5
"""Number of errors in a row after which the trigger gives up: a server can restart meanwhile."""
BOUND_S = 120.0
"""Maximum duration of one question, in seconds."""


class TributaryTrigger(BaseTrigger):
    """Asks `tributary` again and again, and fires once there is an answer.

    Args:
        program: Where `tributary` is, as plain values.
        poll_s: Seconds between two questions.
        bound_s: Maximum duration of one question, in seconds.
    """

    def __init__(self, program: dict[str, Any], poll_s: float, bound_s: float = BOUND_S) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.program = program
        self.poll_s = poll_s
        self.bound_s = bound_s

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The command with its options and tables."""

    @abstractmethod
    def judge(self, ran: Ran) -> tuple[Judged, str]:
        """Return the verdict on an answer, and the reason to wait longer: empty for an error."""

    @abstractmethod
    def question(self) -> dict[str, Any]:
        """Return this kind of trigger's own arguments, without those that all triggers have."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments, from which the triggerer makes the trigger."""
        common = {"program": self.program, "poll_s": self.poll_s, "bound_s": self.bound_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**self.question(), **common}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask until the answer is there, or until too many questions in a row had errors."""
        errors, program = 0, Program(**self.program)
        while True:
            judged, waiting = await self._ask(program)
            errors = 0 if waiting else errors + 1
            if judged.verdict is not Verdict.RETRY or errors >= ERRORS:
                yield TriggerEvent({"verdict": judged.verdict.value, "message": judged.message})
                return
            await asyncio.sleep(self.poll_s)

    async def _ask(self, program: Program) -> tuple[Judged, str]:
        try:
            ran = await ask(program, self.words, bound_s=self.bound_s)
        except OSError as error:
            text = f"tributary cannot be started: {error.strerror}"
            return Judged(Verdict.RETRY, text), ""
        if ran is None:
            text = f"tributary {self.words[0]} took longer than {self.bound_s:.0f} s"
            return Judged(Verdict.RETRY, text), ""
        return self.judge(ran)


class CompletenessTrigger(TributaryTrigger):
    """Fires once an hour or a day of a table is complete, or cannot become so.

    Args:
        table: The table.
        period: Name of the period.
        **kwargs: The arguments of `TributaryTrigger`.
    """

    def __init__(self, table: str, period: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.period = period

    @property
    def words(self) -> tuple[str, ...]:
        """The command `tributary complete`."""
        return tuple(command.complete(self.table, self.period))

    def judge(self, ran: Ran) -> tuple[Judged, str]:
        """Return the verdict on the period, and the reason to wait longer."""
        return judge_period(ran, messages=bool(self.program.get("messages")))

    def question(self) -> dict[str, Any]:
        """Return table and period."""
        return {"table": self.table, "period": self.period}


class FreshnessTrigger(TributaryTrigger):
    """Fires once tables are as fresh as asked for, or cannot become so.

    Args:
        tables: The tables.
        tier: The tier; None for all.
        max_age_s: Maximum ``freshness_s`` of a table, in seconds; None for each table's own target.
        **kwargs: The arguments of `TributaryTrigger`.
    """

    def __init__(
        self, tables: list[str], tier: str | None, max_age_s: float | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.tier = tier
        self.max_age_s = max_age_s

    @property
    def words(self) -> tuple[str, ...]:
        """The command `tributary status`."""
        return tuple(command.status(self.tables, self.tier))

    def judge(self, ran: Ran) -> tuple[Judged, str]:
        """Return the verdict on the tables' freshness, and the reason to wait longer."""
        return judge_freshness(ran, self.max_age_s, messages=bool(self.program.get("messages")))

    def question(self) -> dict[str, Any]:
        """Return the tables and the limit."""
        return {"tables": self.tables, "tier": self.tier, "max_age_s": self.max_age_s}
