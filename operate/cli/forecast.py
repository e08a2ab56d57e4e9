"""Prints the result of the command ``plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.render import seconds

if TYPE_CHECKING:
    from operate.forecast import Forecast
    from operate.render import Renderer


def show_forecast(renderer: Renderer, found: Forecast) -> None:
    """Print the predicted order of runs, the load of each tier, and the recommended changes.

    Args:
        renderer: The output.
        found: The forecast.
    """
    needs = {need.table: need for need in found.needs}
    if found.order:
        heads = ("table", "tier", "starts in", "takes", "behind", "can wait")
        rows = []
        for table, at in found.order:
            need = needs[table]
            wait = None if need.slack_s is None else need.slack_s
            rows.append(
                (
                    *(table, need.tier, seconds(at), seconds(need.seconds), f"{need.behind:,}"),
                    None if wait is None else "late" if wait < 0 else seconds(wait),
                )
            )
        renderer.table(heads, rows, numbers="starts in,takes,behind,can wait")
    else:
        renderer.line("No table has changes that wait.")
    waiting = sum(1 for need in found.needs if need.behind) - len(found.order)
    if waiting > 0:
        renderer.line(f"and {waiting:,} more tables")
    for tier, load in found.tiers.items():
        renderer.line(f"tier {tier}: {load:.0%} of {found.capacity}")
    if found.kept:
        renderer.line(
            f"All targets can be kept: they need {found.load:.0%} of {found.capacity}.",
            style="green",
        )
    elif not found.short:
        renderer.line("Whether all targets can be kept is not known.", style="bold red")
    else:
        renderer.line(
            f"Not all targets can be kept: they need {found.load:.0%} of {found.capacity}.",
            style="bold red",
        )
    for short in found.short:
        renderer.line(f"  {short.reason}")
        for change in short.remedies:
            renderer.line(f"    What to do: {change}")
    for capture in found.captures:
        if capture.near:
            renderer.line(capture.warning, style="yellow")
            renderer.line(f"    What to do: {capture.remedy}")
    for table, reason in found.problems:
        renderer.line(f"{table}: {reason}", style="yellow")
