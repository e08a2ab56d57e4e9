"""One error for all columns due to which a table cannot be replicated, with the settings to add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from cdc.config import TableSettings
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.table import TableId, quote_name


def refusal(
    table: TableId,
    key: Sequence[str],
    settings: TableSettings,
    *,
    types: Mapping[str, UnsupportedTypeError],
    names: Mapping[str, str],
) -> SchemaError:
    """Return the error for a source table with columns that cannot be replicated.

    Args:
        table: The table.
        key: The table's key. A key column can neither be read by key nor be left out.
        settings: The table's settings.
        types: Columns whose type has no rule, each with its error.
        names: Columns whose name the lake cannot have, each with the reason.
    """
    kind = UnsupportedTypeError if types else SchemaError
    return kind(
        _message(table, types, names),
        remedy=_remedy(table, key, settings, types, names),
        table=table,
        field=", ".join([*types, *names]),
    )


def _message(
    table: TableId, types: Mapping[str, UnsupportedTypeError], names: Mapping[str, str]
) -> str:
    """Return the whole message of one refused column of the source, or a short list of several."""
    whole = [error.message for error in types.values()]
    whole += [f"column {name!r} of table {table} {why}" for name, why in names.items()]
    if len(whole) == 1:
        return whole[0]
    short = [f"{name!r} ({one.context['short']})" for name, one in types.items()]
    short += [f"{name!r} ({why})" for name, why in names.items()]
    return (
        f"{len(short)} columns of table {table} cannot be replicated as they are:"
        f" {', '.join(short)}"
    )


def _remedy(
    table: TableId,
    key: Sequence[str],
    settings: TableSettings,
    types: Mapping[str, UnsupportedTypeError],
    names: Mapping[str, str],
) -> str:
    rows = (
        ""
        if settings.appends
        else "; a run then reads the text of each changed row from the source by key"
    )
    free = [name for name in types if name not in key and name not in names]
    asked = [] if settings.appends else free
    away = [name for name in names if name not in key] + (free if settings.appends else [])
    choices = []
    if asked:
        choices.append(
            f"Set {_setting(table, settings, asked, away)}{rows}."
            + (" `exclude` leaves a column out instead." if not away else "")
        )
    elif away:
        choices.append(f"Leave them out: set {_setting(table, settings, asked, away)}.")
    if lost := [name for name in names if name in key]:
        choices.append(f"Rename {_listed(lost)} on the source, since a key cannot be left out.")
    if lost := [name for name in types if name in key and name not in names]:
        choices.append(
            f"For {_listed(lost)}, set key_columns to other columns that are NOT NULL and unique"
            " together: a key needs types that events carry."
        )
    return " ".join(choices)


def _setting(
    table: TableId, settings: TableSettings, asked: Sequence[str], away: Sequence[str]
) -> str:
    """Return a source table's entry in ``tributary.yaml``, in one line to paste."""
    columns: dict[str, object] = {}
    if asked:
        columns["as"] = {**settings.columns.as_, **dict.fromkeys(asked, "string")}
    if away:
        columns["exclude"] = [*settings.columns.exclude, *away]
    entry = {"tables": {str(table): {"columns": columns}}}
    flow = yaml.safe_dump(
        entry, default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True
    )
    return f"`{flow.strip()[1:-1]}`"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quote_name, names))
