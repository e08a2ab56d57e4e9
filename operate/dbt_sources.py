"""``export dbt-sources``: the published tables as sources of dbt, with freshness and tests.

The document has the form of dbt 1.10.5 and later: settings under ``config``, and the arguments of
tests under ``arguments``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cdc.rows.columns import INGESTED_AT
from operate.check_status import readable

if TYPE_CHECKING:
    from cdc.config import Config, TableSettings
    from cdc.config.checks import CheckSettings
    from cdc.store.table_state import TableRecord
    from schemas.table import Shard, TableId

_TESTS = "data_tests"
LATE_FACTOR = 4
"""The age of a table, in multiples of its target, above which dbt reports an error."""


def dbt_sources(
    config: Config, records: Iterable[TableRecord], *, with_utils: bool = False
) -> dict[str, Any]:
    """Return the document that dbt reads as a file of sources, for tables that readers see.

    The shards of a lake table become one table, with the settings of the shard that sorts first.

    Args:
        config: The configuration.
        records: The records of the tables.
        with_utils: Whether to include checks for which only the package ``dbt_utils`` has a test.

    Raises:
        ConfigError: A table's settings cannot work.
    """
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for record in sorted(records, key=lambda one: one.table):
        if not readable(record):
            continue
        source, schema, name = _names_for_dbt(config, record.table, record.shard)
        tables = found.setdefault((source, schema), {})
        if name not in tables:
            settings = config.table_settings(record.table)
            tables[name] = _table(config, record, name, settings, with_utils=with_utils)
    sources = [
        {"name": source, "schema": schema, "tables": list(tables.values())}
        for (source, schema), tables in found.items()
    ]
    return {"version": 2, "sources": sources}


def _names_for_dbt(config: Config, table: TableId, shard: Shard | None) -> tuple[str, str, str]:
    """Return three names of a table: its source in dbt, its schema, and its name for readers."""
    named = config.catalog_name(table, shard)
    if named is not None:
        return named[0], named[0], named[1]
    if shard is not None:
        schema, _, name = shard.of.rpartition(".")
        return schema or table.source, schema or table.schema, name
    return f"{table.source}_{table.schema}", table.schema, table.name


def _table(
    config: Config,
    record: TableRecord,
    name: str,
    settings: TableSettings,
    *,
    with_utils: bool,
) -> dict[str, Any]:
    """Return the entry of one table in dbt's file of sources."""
    checks = {key: one for key, one in sorted(settings.checks.items()) if one.enabled}
    columns: dict[str, list[Any]] = {}
    whole: list[Any] = []
    for check in checks.values():
        for column, test in _column_tests(config, record, check, with_utils=with_utils):
            columns.setdefault(column, []).append(test)
        whole += _table_tests(check, with_utils=with_utils)
    table: dict[str, Any] = {
        "name": name,
        "description": f"Replicated by Tributary from {record.table}.",
        "config": {
            "loaded_at_field": INGESTED_AT,
            "freshness": _freshness(settings, checks.values()),
        },
    }
    if whole:
        table[_TESTS] = whole
    if columns:
        table["columns"] = [{"name": one, _TESTS: tests} for one, tests in columns.items()]
    return table


def _freshness(settings: TableSettings, checks: Iterable[CheckSettings]) -> dict[str, Any]:
    """Return the ages of a table above which dbt warns, and above which dbt reports an error.

    If checks of kind ``freshness`` have limits of their own and a policy other than ``report``, dbt
    reports an error above the smallest of these limits.
    """
    limits = [
        one.max_age_s
        for one in checks
        if one.kind == "freshness" and one.max_age_s is not None and one.alarms
    ]
    target = settings.freshness_target_s
    error = min(limits) if limits else LATE_FACTOR * target
    return {
        "warn_after": _age_in_minutes(min(target, error)),
        "error_after": _age_in_minutes(error),
    }


def _age_in_minutes(seconds: int) -> dict[str, Any]:
    """Return an age in whole minutes, as dbt's file of sources has it."""
    return {"count": math.ceil(seconds / 60), "period": "minute"}


def _column_tests(
    config: Config, record: TableRecord, check: CheckSettings, *, with_utils: bool
) -> Iterable[tuple[str, Any]]:
    """Yield dbt's tests for a check, each with the tested column."""
    if check.kind == "not_null":
        for column in check.columns:
            yield column, _test("not_null", {}, check)
    elif check.kind == "unique" and len(check.columns) == 1:
        yield check.columns[0], _test("unique", {}, check)
    elif check.kind == "accepted_values":
        values: dict[str, Any] = {"values": list(check.values)}
        if all(map(_is_unquoted_in_sql, check.values)):
            values["quote"] = False
        for column in check.columns:
            yield column, _test("accepted_values", values, check)
    elif check.kind == "reference" and check.references is not None and len(check.columns) == 1:
        text = check.references.table
        referenced = config.table_id(text if ":" in text else f"{record.table.source}:{text}")
        source, _, name = _names_for_dbt(config, referenced, config.shard(referenced))
        target = {"to": f"source('{source}', '{name}')", "field": check.references.columns[0]}
        yield check.columns[0], _test("relationships", target, check)
    elif check.kind == "range" and with_utils:
        bounds = {"min_value": check.min, "max_value": check.max}
        given = {
            key: text if _is_unquoted_in_sql(text) else f"'{text}'"
            for key, text in bounds.items()
            if text is not None
        }
        for column in check.columns:
            yield column, _test("dbt_utils.accepted_range", given, check)


def _table_tests(check: CheckSettings, *, with_utils: bool) -> list[Any]:
    """Return dbt's tests for a check of several columns together."""
    if not (with_utils and check.kind == "unique" and len(check.columns) > 1):
        return []
    columns = {"combination_of_columns": list(check.columns)}
    return [_test("dbt_utils.unique_combination_of_columns", columns, check)]


def _test(name: str, arguments: Mapping[str, Any], check: CheckSettings) -> Any:
    """Return a test of dbt; the test's failure is only a warning if the policy is ``report``."""
    found: dict[str, Any] = {"arguments": dict(arguments)} if arguments else {}
    if not check.alarms:
        found["config"] = {"severity": "warn"}
    return {name: found} if found else name


def _is_unquoted_in_sql(text: str) -> bool:
    """Whether a value is a number or a boolean, which the SQL of dbt's tests does not quote."""
    if text in ("true", "false"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return text.strip("+-0123456789.eE") == ""
