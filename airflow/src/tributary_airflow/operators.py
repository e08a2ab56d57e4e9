"""Tasks that run one command of `tributary` each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tributary_airflow import command
from tributary_airflow.hook import DEFAULT_CONNECTION, TributaryHook
from tributary_airflow.outcome import (
    DONE,
    NEEDS_COPY,
    RUN_CONDITIONS,
    Judged,
    Verdict,
    both,
    judge,
    judge_checks,
    judge_rest,
    judge_run,
    judge_verify,
    summary,
)
from tributary_airflow.process import Ran
from tributary_airflow.raising import raise_verdict

if TYPE_CHECKING:
    from airflow.sdk import Context


class TributaryOperator(BaseOperator):
    """A task that runs commands of `tributary`.

    The task's result (its XCom) has names of tables, states and counts. If the task is killed, its
    command gets SIGTERM.

    Args:
        conn_id: The connection that names where `tributary` is.
    """

    ui_color = "#d7ecf2"

    def __init__(self, *, conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self._hook: TributaryHook | None = None

    @property
    def hook(self) -> TributaryHook:
        """The hook of this task; the connection is read when a command runs."""
        if self._hook is None:
            self._hook = TributaryHook(self.conn_id)
        return self._hook

    @property
    def messages(self) -> bool:
        """Whether the connection lets Airflow get messages of errors."""
        return self.hook.get_conn().messages

    def on_kill(self) -> None:
        """End the command of the task, since the task is killed."""
        if self._hook is not None:
            self._hook.stop()

    def finish(self, ran: Ran, judged: Judged | None = None) -> dict[str, Any]:
        """Return the task's result; raise an exception of Airflow unless the verdict is DONE."""
        raise_verdict(judge(ran, messages=self.messages) if judged is None else judged)
        found = summary(ran, messages=self.messages)
        self.log.info("%s: %d tables", ran.name, len(found["tables"]))
        return found


class TributaryOnboardOperator(TributaryOperator):
    """Captures and copies tables that are new, and goes on with copies that were interrupted.

    A table that was offboarded stays so, also if the task names it.

    Args:
        tables: Names and wildcards.
        strict: Whether a table that a wildcard leaves out fails the task.
        copy_again: Whether to copy tables again that need a bootstrap, for example after a change
            of columns that runs cannot follow.
    """

    template_fields: Sequence[str] = ("tables",)

    def __init__(
        self,
        *,
        tables: Sequence[str],
        strict: bool = False,
        copy_again: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)
        self.strict = strict
        self.copy_again = copy_again

    def execute(self, context: Context) -> dict[str, Any]:
        """Run `tributary onboard`, and `tributary bootstrap` for tables that need it."""
        ran = self.hook.run(*command.onboard(self.tables, strict=self.strict))
        tables = summary(ran)["tables"]
        again = [one for one, found in tables.items() if found.get("state") == NEEDS_COPY]
        if not self.copy_again or not again:
            return self.finish(ran, judge(ran, messages=self.messages, strict=self.strict))
        copied = self.hook.run(*command.of_tables("bootstrap", again))
        rest = judge_rest(ran, again, messages=self.messages, strict=self.strict)
        found = self.finish(copied, both(judge(copied, messages=self.messages), rest))
        return {**found, "tables": {**tables, **found["tables"]}}


class TributaryTablesOperator(TributaryOperator):
    """Runs a command whose arguments are tables.

    Args:
        tables: Names, and wildcards for tables on the plan.
    """

    template_fields: Sequence[str] = ("tables",)
    command_name = ""

    def __init__(self, *, tables: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the command for the tables."""
        return self.finish(self.hook.run(*command.of_tables(self.command_name, self.tables)))


class TributaryBootstrapOperator(TributaryTablesOperator):
    """Copies tables that have no copy or lost their stream."""

    command_name = "bootstrap"


class TributaryResyncOperator(TributaryTablesOperator):
    """Copies tables again beside the serving copy, and publishes the copies."""

    command_name = "resync"


class TributaryRunOperator(TributaryOperator):
    """Applies new changes of a tier or of tables to the lake.

    Args:
        tier: The tier; None for all tiers.
        tables: Names and wildcards; none for all tables.
        fail_on: The conditions of `tributary run --fail-on` that fail the task. By default, late
            tables do not fail the task: the freshness sensor and alarms find them.
        hands_on: Whether the task succeeds although tables or captures are in these conditions,
            since other tasks of the DAG then fail.
    """

    template_fields: Sequence[str] = ("tier", "tables")

    def __init__(
        self,
        *,
        tier: str | None = None,
        tables: Sequence[str] = (),
        fail_on: Sequence[str] = RUN_CONDITIONS,
        hands_on: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.tables = list(tables)
        self.fail_on = tuple(fail_on)
        self.hands_on = hands_on

    def execute(self, context: Context) -> dict[str, Any]:
        """Run `tributary run`, once."""
        ran = self.hook.run(*command.run(self.tables, self.tier, self.fail_on))
        if "conditions" not in ran.document:
            return self.finish(ran)
        found = summary(ran, messages=self.messages)
        return self.finish(ran, DONE if self.hands_on else _of_run(ran, found))


def _of_run(ran: Ran, found: dict[str, Any]) -> Judged:
    judged = judge_run(found)
    if ran.code and judged.verdict is Verdict.DONE:
        return Judged(Verdict.RETRY, f"{ran.name} ended with exit code {ran.code}")
    return judged


class TributaryVerdictOperator(BaseOperator):
    """Fails if a run found a problem of a capture, or of a table that has no task of its own.

    Args:
        run_task_id: The task that ran.
        own: The tables that have tasks of their own.
    """

    def __init__(self, *, run_task_id: str, own: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_task_id = run_task_id
        self.own = list(own)

    def execute(self, context: Context) -> None:
        """Judge the run's result. A retry would see the same result, so a failure is final."""
        found = context["ti"].xcom_pull(task_ids=self.run_task_id)
        if found is None:
            raise_verdict(Judged(Verdict.FAIL, f"the task {self.run_task_id} handed nothing on"))
        judged = judge_run(found, self.own)
        if judged.verdict is not Verdict.DONE:
            raise_verdict(Judged(Verdict.FAIL, judged.message))


class TributaryVerifyOperator(TributaryTablesOperator):
    """Compares source and lake row for row. If they differ, the task fails without a retry.

    Tables that were offboarded do not count; if there is no other table, the task is skipped.

    Args:
        tables: Names, and wildcards for tables on the plan.
        max_seconds: Time budget of the comparison. With ``go_on``, the next task continues where
            this one ended.
        sample: The part of the rows that is compared; None for all.
        go_on: Whether to continue where an earlier comparison with a budget ended.
    """

    def __init__(
        self,
        *,
        max_seconds: int | None = None,
        sample: float | None = None,
        go_on: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_seconds = max_seconds
        self.sample = sample
        self.go_on = go_on

    def execute(self, context: Context) -> dict[str, Any]:
        """Run `tributary verify`."""
        words = command.verify(
            self.tables, max_seconds=self.max_seconds, sample=self.sample, go_on=self.go_on
        )
        ran = self.hook.run(*words)
        return self.finish(ran, judge_verify(ran, messages=self.messages))


class TributaryChecksOperator(TributaryOperator):
    """Executes the due checks of tables' data; the task is skipped if no check is due.

    Args:
        tables: Names and wildcards; none for all tables.
        everything: Whether to execute checks that are not due, too.
        names: Only checks of these names.
    """

    template_fields: Sequence[str] = ("tables", "names")

    def __init__(
        self,
        *,
        tables: Sequence[str] = (),
        everything: bool = False,
        names: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)
        self.everything = everything
        self.names = list(names)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run `tributary checks run`."""
        words = command.checks(self.tables, everything=self.everything, names=self.names)
        ran = self.hook.run(*words)
        return self.finish(ran, judge_checks(ran, messages=self.messages))


class TributaryMaintenanceOperator(TributaryOperator):
    """Removes generations of tables that no reader needs; each table by itself.

    Args:
        tables: Names of tables.
    """

    template_fields: Sequence[str] = ("tables",)

    def __init__(self, *, tables: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)

    def execute(self, context: Context) -> dict[str, int]:
        """Remove each table's unneeded generations; at the end, fail if a removal has failed."""
        removed, failed = dict[str, int](), list[Judged]()
        for table in self.tables:
            ran = self.hook.run(*command.of_tables("generations remove", [table]))
            judged = judge(ran, messages=self.messages)
            if judged.verdict is Verdict.DONE:
                removed[table] = len(ran.document.get("removed") or ())
            else:
                failed.append(judged)
        if failed:
            final = all(one.verdict is Verdict.FAIL for one in failed)
            message = "; ".join(one.message for one in failed)
            raise_verdict(Judged(Verdict.FAIL if final else Verdict.RETRY, message))
        return removed


class TributaryCheckOperator(TributaryOperator):
    """Runs `tributary check`: whether everything that onboarding and runs need is there."""

    def execute(self, context: Context) -> dict[str, int]:
        """Return the numbers of errors and warnings; fail if there is an error."""
        ran = self.hook.run("check")
        counts = {key: ran.document.get(key, 0) for key in ("errors", "warnings")}
        if ran.code and counts["errors"]:
            names = [
                str(one.get("name"))
                for one in ran.document.get("checks") or ()
                if one.get("status") == "error"
            ]
            listed = ", ".join(names)
            raise_verdict(
                Judged(Verdict.RETRY, f"{listed}: see `tributary check` for the remedies")
            )
        raise_verdict(judge(ran, messages=self.messages))
        return counts
