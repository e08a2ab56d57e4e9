"""The error for a table's columns that cannot be replicated, with the settings to add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from cdc.config import TableSettings
from schemas.errors import SchemaError, UnsupportedTypeError
from schemas.table import TableId, quote_name

RENAMED = (
    "then restart the connector of the source and tier in Kafka Connect (POST"
    " /connectors/NAME/restart?includeTasks=true), since it keeps the names of its last start"
)
"""The end of a remedy that asks the operator to rename a type.

The connector can mistake a column's type for this type, since both have the same name.
"""


def refusal(
    table: TableId,
    key: Sequence[str],
    settings: TableSettings,
    *,
    types: Mapping[str, UnsupportedTypeError],
    names: Mapping[str, str],
    bound: Mapping[str, str],
) -> SchemaError:
    """Return the error for a source table with columns that cannot be replicated.

    Args:
        table: The table.
        key: The table's key. A key column can neither be read by key nor be left out.
        settings: The table's settings.
        types: For each column whose type cannot be converted: the error of the type.
        names: For each column whose name the lake does not allow: the reason.
        bound: For each virtual column whose values depend on more than the row: what else they
            depend on, for example ``the session's time zone``.
    """
    kind = UnsupportedTypeError if types else SchemaError
    others = {
        name: f"is virtual, and its value depends on {what}" for name, what in bound.items()
    } | dict(names)
    remedy = _refused_columns_remedy(table, key, settings, types, names, bound)
    misread = {one.context["misread_as"] for one in types.values() if "misread_as" in one.context}
    if misread:
        remedy += f" Or rename {', '.join(sorted(misread))}: {RENAMED}."
    return kind(
        _refused_columns_message(table, types, others),
        remedy=remedy,
        table=table,
        field=", ".join(dict.fromkeys([*types, *others])),
    )


def _refused_columns_message(
    table: TableId, types: Mapping[str, UnsupportedTypeError], others: Mapping[str, str]
) -> str:
    """Return the message of the error about a source table's columns that are not replicated.

    The message has the full reason if it is about one column, and short reasons if it is about
    several columns.

    Args:
        table: The table.
        types: For each column whose type cannot be converted: the error of the type.
        others: For each other column of the message: the reason.
    """
    whole = [error.message for error in types.values()]
    whole += [f"column {name!r} of table {table} {why}" for name, why in others.items()]
    if len(whole) == 1:
        return whole[0]
    short = [f"{name!r} ({one.context['short']})" for name, one in types.items()]
    short += [f"{name!r} ({why})" for name, why in others.items()]
    return (
        f"{len(short)} columns of table {table} cannot be replicated as they are:"
        f" {', '.join(short)}"
    )


def _refused_columns_remedy(
    table: TableId,
    key: Sequence[str],
    settings: TableSettings,
    types: Mapping[str, UnsupportedTypeError],
    names: Mapping[str, str],
    bound: Mapping[str, str],
) -> str:
    """Return the remedy for a source table's columns that cannot be replicated as they are."""
    rows = (
        ""
        if settings.appends
        else "; a run then reads the text of each changed row from the source by key"
    )
    others = dict.fromkeys([*names, *bound])
    free = [name for name in types if name not in key and name not in others]
    texts = [name for name in free if types[name].context.get("as_text", True)]
    asked = [] if settings.appends else texts
    away = [name for name in others if name not in key]
    away += [name for name in free if name not in asked]
    choices = []
    if asked:
        choices.append(
            f"Set {_refused_columns_entry(table, settings, asked, away)}{rows}."
            + (" `exclude` leaves a column out instead." if not away else "")
        )
    elif away:
        choices.append(
            f"Leave them out: set {_refused_columns_entry(table, settings, asked, away)}."
        )
    if lost := [name for name in names if name in key]:
        choices.append(
            f"Rename {_quoted_names(lost)} on the source, since a key cannot be left out."
        )
    if bound:
        choices.append(
            f"Or replace {_quoted_names(list(bound))} by a plain column that the application"
            " or a trigger writes."
        )
    if lost := [name for name in types if name in key and name not in others]:
        choices.append(
            f"For {_quoted_names(lost)}, set key_columns to other columns that are NOT NULL and"
            " unique together: a key needs types that events carry."
        )
    return " ".join(choices)


def _refused_columns_entry(
    table: TableId, settings: TableSettings, asked: Sequence[str], away: Sequence[str]
) -> str:
    """Return the ``tributary.yaml`` entry that is the remedy for a source table's refused columns.

    The entry is one line, ready to be pasted.

    Args:
        table: The table.
        settings: The table's present settings.
        asked: The columns to add to ``columns.as``, each as ``string``.
        away: The columns to add to ``columns.exclude``.
    """
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


def _quoted_names(names: Sequence[str]) -> str:
    """Return the names of a source table's refused columns, quoted for a remedy."""
    return ", ".join(map(quote_name, names))
