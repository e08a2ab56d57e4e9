"""The arguments and options with which commands choose tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from operate.context import Services
    from schemas.table import TableId

SomeTablesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE]...",
        help=r"\[source:]schema.table, or a quoted wildcard; without it, all tables.",
        show_default=False,
    ),
]
TiersOption = Annotated[
    list[str] | None,
    typer.Option("--tier", help="Only tables of this tier. It can be repeated.", metavar="TIER"),
]


def chosen(
    opened: Services, tables: Sequence[str] | None, tiers: Sequence[str] | None
) -> list[TableId]:
    """Return the tables that a command's arguments select; an empty list means all tables."""
    from operate.discover import followed, selected

    if tiers:
        return [record.table for record in followed(opened, tables or (), tiers=tiers)()]
    return selected(opened, tables) if tables else []
