"""Finds out whether a state store without any table's record belongs to a new project.

If the project is not new, the store was lost and created again, or ``state.url`` names another
store. Nothing then applies the changes that the connectors send, and the topics drop these changes
after their retention. Kafka Connect shows the difference: in a new project, Kafka Connect has no
connector of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.config.tables import capture_tiers
from cdc.debezium import names
from cdc.errors import ConfigError, ConnectError, StateError
from cdc.store.lease import held_leases
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from operate.server_answers import Answers


class LostTablesError(StateError):
    """The state store has no table's record, although connectors of the configuration exist."""


@dataclass(frozen=True)
class EmptyStore:
    """A state store that has no table's record, not even the record of an offboarded table.

    Args:
        left: The captures of the configuration that have a connector and that no process is
            changing; None if Kafka Connect did not answer.
        problem: What is wrong; None for a new project.
    """

    left: tuple[CaptureNames, ...] | None
    problem: TributaryError | None

    @property
    def lost(self) -> bool:
        """Whether the state store lacks records of tables that it must have."""
        return bool(self.left)

    @property
    def connectors(self) -> list[str]:
        """The connectors of the captures in `left`; empty if Kafka Connect did not answer."""
        return [one.connector for one in self.left or ()]

    def to_json(self) -> dict[str, Any]:
        """What is known about the empty state store, as plain values."""
        return {
            "connectors": None if self.left is None else self.connectors,
            "problem": None if self.problem is None else self.problem.to_dict(),
        }


def empty_store(services: Services, answers: Answers) -> EmptyStore | None:
    """Return what is known about a store without any table's record; None if a table has a record.

    Args:
        services: The services of the command.
        answers: Asks Kafka Connect, within a limited time.
    """
    store = services.store
    if store.tables():
        return None
    wanted = {capture.connector: capture for capture in configured_captures(services.config)}
    try:
        there = answers.connectors()
    except TributaryError as error:
        unknown = ConnectError(
            "whether connectors of lost tables exist is not known, since Kafka Connect could not be"
            f" asked: {error.message}",
            remedy=error.remedy,
        )
        return EmptyStore(None, unknown)
    # `onboard` creates the first connector before it records the first table, under this lease.
    held = {resource for resource, lease in held_leases(store).items() if not lease.abandoned}
    left = tuple(
        wanted[name] for name in there if name in wanted and wanted[name].resource not in held
    )
    if store.tables():
        return None
    return EmptyStore(left, _lost_tables_error(store.shown_url, left) if left else None)


def configured_captures(config: Config) -> list[CaptureNames]:
    """Return all captures that configured tables can have.

    Commands search the servers for these captures. A capture whose name is too long is left out.
    """
    sections = (config.defaults, *config.tables.values())
    tiers = dict.fromkeys([*(one.tier for one in sections), *config.tiers])
    found: list[CaptureNames] = []
    for source, settings in config.sources.items():
        for tier in (one for configured in tiers for one in capture_tiers(configured)):
            try:
                found.append(names(source, settings, tier))
            except ConfigError:
                continue  # too long a name, so no table has this capture
    return found


def _lost_tables_error(store: str, left: tuple[CaptureNames, ...]) -> LostTablesError:
    """Return a command's error: the state store has no table, but Kafka Connect has connectors."""
    many = len(left) > 1
    them = f"connector{'s' if many else ''} {', '.join(one.connector for one in left)}"
    slots = ", ".join(
        f"slot {one.slot} and publication {one.publication} of source {one.source}"
        for one in left
        if one.slot is not None
    )
    return LostTablesError(
        f"the state store {store} has no table, but Kafka Connect has {them} of this configuration,"
        " so nothing applies what the source sends",
        remedy="Check state.url. If the state store was lost, restore it from a backup; without"
        " one, run `tributary onboard --take-over` for its tables. If another installation uses"
        f" {them}, leave it, and give this one names of its own: set other slot, publication and"
        " topic_prefix for the sources, or name them otherwise. If `tributary onboard` was"
        " interrupted, run it again. If no installation is to replicate a table, delete"
        f" {them} in Kafka Connect" + (f", and drop {slots}." if slots else "."),
        connector=left[0].connector,
        field="state.url",
    )
