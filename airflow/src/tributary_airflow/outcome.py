"""What the exit code and the JSON of a command mean for a task: done, skip, try again, or fail.

The exit codes are those of docs/observe.md. No message of an error leaves this module unless
``messages`` is true: messages of servers can quote values of rows. Names of tables, states, classes
of errors and remedies are Tributary's own words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tributary_airflow.guard import NOT_EXECUTABLE, NOT_FOUND
from tributary_airflow.process import Ran

OK, ERROR, USAGE, SOME_FAILED, NEEDS_BOOTSTRAP = range(5)
"""The exit codes of `tributary`."""

PERMANENT = frozenset(
    {
        "AvroSchemaError",
        "ConfigError",
        "DdlError",
        "DecodeError",
        "InvalidIdentifierError",
        "LostEventsError",
        "LostHistoryError",
        "LostLogError",
        "MissingTableError",
        "OtherConnectorError",
        "OtherInstallationError",
        "PausedByPolicyError",
        "PermanentError",
        "PositionError",
        "SchemaChangeError",
        "SchemaError",
        "SecretError",
        "UnsupportedTypeError",
    }
)
"""Errors that stay until a person acts, so that another try is a waste of time."""

COPY_CONDITIONS = ("needs_bootstrap", "half_copied", "lost")
"""Conditions of a table that only a new copy ends."""
TABLE_CONDITIONS = ("failed", *COPY_CONDITIONS)
RUN_CONDITIONS = (*TABLE_CONDITIONS, "silent", "over_limit", "empty_store")
"""The conditions that fail a run by default.

Late tables do not fail it: the freshness sensor and alarms find them.
"""
FOLLOWED, PAUSED, NEEDS_COPY = "incremental", "paused", "needs_bootstrap"
OFFBOARDED = "retired"
COPYING = frozenset({"registered", "bootstrapping", "catching_up"})
"""States of a table from its onboarding until its copy follows the stream."""


class Verdict(str, Enum):
    """What happens to a task after its command has ended."""

    DONE = "done"
    SKIP = "skip"
    RETRY = "retry"
    FAIL = "fail"


@dataclass(frozen=True)
class Judged:
    """A verdict, and the sentence for the log of the task."""

    verdict: Verdict
    message: str


DONE = Judged(Verdict.DONE, "")


def judge(ran: Ran, *, messages: bool, strict: bool = False) -> Judged:
    """Return the verdict on any command, by its exit code and the errors in its JSON.

    Args:
        ran: The command.
        messages: Whether messages of errors are shown.
        strict: Whether tables that were left out are errors, too, which only a person can end.
    """
    if ran.code == OK:
        return DONE
    if ran.code in (NOT_FOUND, NOT_EXECUTABLE):
        return Judged(
            Verdict.FAIL,
            "tributary cannot be started. What to do: install it in an environment of its own on"
            " the worker, and name its path as `binary` in the connection.",
        )
    if ran.code == USAGE:
        return Judged(
            Verdict.FAIL,
            f"{ran.name}: wrong usage. What to do: compare the versions of tributary-cdc and"
            " tributary-airflow, and the arguments of the task.",
        )
    errors = list(_errors(ran.document))
    left_out = _left_out(ran.document) if strict else []
    listed = _listed([*errors, *left_out], messages=messages)
    text = f"{ran.name} ended with exit code {ran.code}" + (f": {listed}" if listed else "")
    if ran.code == NEEDS_BOOTSTRAP:
        # The exit code hides the one for a source that was down.
        away = any(one.get("error") not in PERMANENT for one in _problems(ran.document))
        return Judged(Verdict.RETRY if away else Verdict.FAIL, text)
    if ran.code in (ERROR, SOME_FAILED):
        return Judged(_verdict_on(errors, left_out), text)
    return Judged(Verdict.RETRY, text)


def judge_rest(
    ran: Ran, copied: Collection[str], *, messages: bool, strict: bool = False
) -> Judged:
    """Return the verdict on what an onboarding leaves once some of its tables are copied again.

    Args:
        ran: The onboarding.
        copied: The tables that were copied again, whose errors count no more.
        messages: Whether messages of errors are shown.
        strict: Whether tables that were left out are errors, too. The exit code for a table that
            needs a copy hides the one for them.
    """
    errors = [one for one in _errors(ran.document) if one[0] not in copied]
    left_out = _left_out(ran.document) if strict else []
    if not errors and not left_out:
        return DONE
    listed = _listed([*errors, *left_out], messages=messages)
    return Judged(_verdict_on(errors, left_out), f"{ran.name}: {listed}")


def both(one: Judged, other: Judged) -> Judged:
    """Return the verdict on two commands of a task: RETRY if another try of either can help."""
    by_verdict = {judged.verdict: judged for judged in (one, other)}
    for verdict in (Verdict.RETRY, Verdict.FAIL):
        if verdict in by_verdict:
            text = "; ".join(judged.message for judged in (one, other) if judged.message)
            return Judged(verdict, text)
    return by_verdict.get(Verdict.SKIP, one)


_Errors = Sequence[tuple[str, Mapping[str, Any]]]
"""Errors in a command's JSON, each with the name of what has it."""


def _verdict_on(errors: _Errors, left_out: _Errors = ()) -> Verdict:
    """Return FAIL if only a person can end all of the errors; else, or without any, RETRY.

    Only a person can change that a table is left out.
    """
    known = all(error.get("error") in PERMANENT for _, error in errors)
    known = known and bool(errors or left_out)
    return Verdict.FAIL if known else Verdict.RETRY


def _left_out(document: Mapping[str, Any]) -> _Errors:
    """Return the reasons why an onboarding left tables out, each with the table's name."""
    listed = [one for one in document.get("left_out") or () if isinstance(one, Mapping)]
    return [(str(one.get("table")), one.get("error") or {}) for one in listed]


def _listed(errors: _Errors, *, messages: bool) -> str:
    return "; ".join(f"{name}: {_words(error, messages=messages)}" for name, error in errors)


def _errors(document: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the command's error, those of sources and wildcards, and each table's error.

    Each error has the name of what has it.
    """
    if isinstance(document.get("error"), str):
        yield "error", document
    for problem in _problems(document):
        yield "selection", problem
    for entry in document.get("tables") or ():
        error = entry.get("error") if isinstance(entry, Mapping) else None
        if isinstance(error, Mapping):
            yield str(entry.get("table")), error


def _problems(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the errors because of which a command did not find all tables that it was to take."""
    listed = [one for one in document.get("problems") or () if isinstance(one, Mapping)]
    return [one for one in listed if isinstance(one.get("error"), str)]


def _is_offboarded(error: Mapping[str, Any]) -> bool:
    """Return whether an error is only that its table was offboarded, by an operator's decision."""
    context = error.get("context")
    return isinstance(context, Mapping) and context.get("state") == OFFBOARDED


def _words(error: Mapping[str, Any], *, messages: bool) -> str:
    """Return an error in words: its class and remedy, and with ``messages`` also its message."""
    text = f"{error['message']} ({error['error']})" if messages else str(error.get("error"))
    return f"{text}. What to do: {error.get('remedy') or 'see tributary status'}"


def summary(ran: Ran, *, messages: bool = False) -> dict[str, Any]:
    """Return the part of a command's JSON for a task's result: counts and names, no value of a row.

    The operators' XComs have this part. Keys and texts that this function does not name are left
    out.
    """
    document = ran.document
    tables = {}
    for entry in document.get("tables") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("table"), str):
            tables[entry["table"]] = _of_table(entry, messages=messages)
    found: dict[str, Any] = {"exit_code": ran.code, "tables": tables}
    for key in ("waiting", "conditions"):
        if isinstance(document.get(key), Mapping):
            found[key] = dict(document[key])
    if problems := _problems(document):
        found["problems"] = [
            {"error": str(one.get("error")), "words": _words(one, messages=messages)}
            for one in problems
        ]
    if isinstance(document.get("left_out"), list):
        found["left_out"] = [one["table"] for one in document["left_out"]]
    if isinstance(document.get("failed_checks"), list):
        found["failed_checks"] = len(document["failed_checks"])
    return found


_COUNTS = (
    *("state", "commits", "events", "seconds", "skipped", "deferred", "equal", "rows_compared"),
    *("difference_count", "unsettled_count", "complete"),
)


def _of_table(entry: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
    kept = {key: entry[key] for key in _COUNTS if key in entry}
    error = entry.get("error")
    if isinstance(error, Mapping):
        kept["error"] = str(error.get("error"))
        kept["words"] = _words(error, messages=messages)
    return kept


def judge_run(found: Mapping[str, Any], own: Collection[str] = ()) -> Judged:
    """Return the verdict on a run of several tables, some of which have tasks of their own.

    Args:
        found: The `summary` of the run.
        own: The tables with tasks of their own. A problem of such a table fails its own task, and
            does not count here.
    """
    code = found["exit_code"]
    if code == OK:
        return DONE
    conditions = found.get("conditions") or {}
    others, listed = list[str](), 0
    for condition in RUN_CONDITIONS:
        names = conditions.get(condition) or []
        listed += len(names)
        mine = own if condition in TABLE_CONDITIONS else ()
        others += [f"{condition}: {name}" for name in names if name not in mine]
    if others:
        verdict = Verdict.FAIL if code == NEEDS_BOOTSTRAP else Verdict.RETRY
        text = f"{'; '.join(others)}. What to do: `tributary status` has the remedies."
        return Judged(verdict, text)
    if not listed or found.get("failed_checks"):
        return Judged(
            Verdict.RETRY,
            f"the run ended with exit code {code}: one of its own checks failed, or only a new"
            " process can go on. What to do: another try is a new process; see `tributary status`.",
        )
    return DONE


def judge_table(found: Mapping[str, Any], table: str) -> Judged:
    """Return the verdict on one table of a run.

    Args:
        found: The `summary` of the run.
        table: The table, as Tributary prints it.
    """
    conditions = found.get("conditions") or {}
    result = (found.get("tables") or {}).get(table) or {}
    state = (found.get("waiting") or {}).get(table, result.get("state"))
    words = f": {result['words']}" if "words" in result else ""
    for condition in COPY_CONDITIONS:
        if table in (conditions.get(condition) or ()):
            remedy = "" if words else f". What to do: run `tributary bootstrap {table}`."
            return Judged(Verdict.FAIL, f"table {table} is in {condition}{words}{remedy}")
    if result.get("error") or table in (conditions.get("failed") or ()):
        verdict = Verdict.FAIL if result.get("error") in PERMANENT else Verdict.RETRY
        remedy = "" if words else f". What to do: see `tributary status {table}`."
        return Judged(verdict, f"table {table} has failed{words}{remedy}")
    if state in COPYING or state == PAUSED:
        return Judged(Verdict.SKIP, f"table {table} is {state}, so runs leave it alone")
    if result.get("skipped"):
        return Judged(Verdict.SKIP, f"another process works on table {table}")
    if not result.get("commits"):
        return Judged(Verdict.SKIP, f"table {table} had no changes")
    return DONE


def judge_verify(ran: Ran, *, messages: bool) -> Judged:
    """Return the verdict on a comparison: FAIL for differences, which a retry would find again.

    A table that was offboarded does not count. SKIP if no other table was compared.
    """
    different = [
        f"{one.get('table')}: {one.get('difference_count', 0)} differences,"
        f" {one.get('unsettled_count', 0)} keys that kept changing"
        for one in ran.document.get("tables") or ()
        if isinstance(one, Mapping) and one.get("equal") is False and "difference_count" in one
    ]
    if ran.code == SOME_FAILED and different:
        return Judged(
            Verdict.FAIL,
            f"{'; '.join(different)}. What to do: `tributary verify TABLE` shows the keys, and"
            " `tributary resync TABLE` copies the table again.",
        )
    errors = list(_errors(ran.document))
    rest = [one for one in errors if not _is_offboarded(one[1])]
    if ran.code != SOME_FAILED or len(rest) == len(errors):
        return judge(ran, messages=messages)
    if rest:
        return Judged(_verdict_on(rest), f"{ran.name}: {_listed(rest, messages=messages)}")
    if len(errors) < len(ran.document["tables"]):
        return DONE
    return Judged(Verdict.SKIP, f"offboarded: {', '.join(name for name, _ in errors)}")


def judge_checks(ran: Ran, *, messages: bool) -> Judged:
    """Return the verdict on checks: FAIL if one failed, SKIP if none was due, else as `judge`."""
    results = [one for one in ran.document.get("results") or () if isinstance(one, Mapping)]
    failed = [
        f"{one.get('table')}: {one.get('check')}"
        for one in results
        if one.get("outcome") == "failed"
    ]
    if ran.code == SOME_FAILED and failed:
        return Judged(
            Verdict.FAIL,
            f"checks failed: {', '.join(failed)}. What to do: see `tributary checks list`.",
        )
    if ran.code == OK and not results and not ran.document.get("tables"):
        return Judged(Verdict.SKIP, "no check is due")
    return judge(ran, messages=messages)


def judge_period(ran: Ran, *, messages: bool) -> tuple[Judged, str]:
    """Return the verdict on a question for one period, and the reason why it is not complete yet.

    If the verdict is RETRY, an empty reason means an error; any other reason means that the period
    is not complete yet.
    """
    completion = ran.document.get("completion")
    if ran.code == OK and completion == "complete":
        return DONE, ""
    if ran.code == ERROR and completion == "not yet":
        return Judged(Verdict.RETRY, f"{ran.name}: not yet"), "not yet"
    if ran.code == NEEDS_BOOTSTRAP:
        table = ran.document.get("table", "TABLE")
        return (
            Judged(
                Verdict.FAIL,
                f"{ran.name}: the period cannot become complete, since table {table} needs a copy."
                f" What to do: run `tributary bootstrap {table}`.",
            ),
            "",
        )
    if ran.code == OK:
        return Judged(Verdict.RETRY, f"{ran.name} printed no verdict"), ""
    return judge(ran, messages=messages), ""


def judge_announced(ran: Ran, table: str, *, messages: bool) -> Judged:
    """Return the verdict on a table's list of periods: SKIP if the table was offboarded."""
    if ran.code == ERROR and _is_offboarded(ran.document):
        return Judged(Verdict.SKIP, f"table {table} was offboarded")
    return judge(ran, messages=messages)


def judge_freshness(ran: Ran, max_age_s: float | None, *, messages: bool) -> tuple[Judged, str]:
    """Return the verdict on the freshness of the tables in a `status`, and what is not fresh yet.

    Args:
        ran: The `status`.
        max_age_s: Maximum ``freshness_s`` of a table, in seconds; None for each table's own target.
        messages: Whether messages of errors are shown.
    """
    tables = ran.document.get("tables")
    if ran.code == USAGE or not isinstance(tables, list):
        judged = judge(ran, messages=messages)
        known = judged.verdict is not Verdict.DONE
        return judged if known else Judged(Verdict.RETRY, f"{ran.name} printed no tables"), ""
    copies = [one["table"] for one in tables if {*one.get("conditions", ())} & {*COPY_CONDITIONS}]
    if copies:
        listed = ", ".join(copies)
        return (
            Judged(
                Verdict.FAIL,
                f"{listed}: no change arrives before a new copy. What to do: run"
                " `tributary bootstrap`.",
            ),
            "",
        )
    old = [one["table"] for one in tables if not _fresh(one, max_age_s)]
    if not tables:
        return Judged(Verdict.RETRY, f"{ran.name}: no table"), "no table is on the plan"
    if old:
        return Judged(Verdict.RETRY, f"not fresh: {', '.join(old)}"), f"not fresh: {', '.join(old)}"
    return DONE, ""


def _fresh(table: Mapping[str, Any], max_age_s: float | None) -> bool:
    age = table.get("freshness_s")
    limit = table.get("freshness_target_s") if max_age_s is None else max_age_s
    return table.get("state") == FOLLOWED and age is not None and age <= (limit or 0)
