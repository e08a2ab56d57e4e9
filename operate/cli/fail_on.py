"""The option ``--fail-on``, and what a command prints about the named conditions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from operate.conditions import Condition, UnknownConditionError, named_conditions

if TYPE_CHECKING:
    from operate.conditions import Found
    from operate.render import Renderer

FailOnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CONDITIONS",
        help="Which conditions end the command with another exit code than 0, separated by commas:"
        f" {', '.join(one.value for one in Condition)}. docs/observe.md explains them.",
        show_default=False,
    ),
]


def conditions(texts: Iterable[str]) -> frozenset[Condition]:
    """Return the conditions that ``--fail-on`` names.

    Raises:
        typer.BadParameter: ``--fail-on`` names something that is not a condition.
    """
    try:
        return named_conditions(texts)
    except UnknownConditionError as error:
        raise typer.BadParameter(str(error), param_hint="--fail-on") from None


def show_found(renderer: Renderer, found: Found) -> None:
    """Print the conditions for which the command fails, each with some tables or captures in it."""
    from cdc.capture.captured_tables import listed

    for condition, names in found.items():
        renderer.line(f"Not as it should be: {condition.value}: {listed(names)}", style="red")
