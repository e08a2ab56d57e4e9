"""Distinguishes the images of a table (generations) of one installation from those of others.

Two installations with the same ``lake.url`` and table names have the same folders, but neither
records nor leases in common. Without this distinction, each installation would publish over the
other's generations. It would also remove the folders of the other's attempts, because no record in
its own state store names these folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.errors import OtherInstallationError
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.lake.pointer import Pointer
    from cdc.store.installation import Installation
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


@dataclass(frozen=True)
class Ownership:
    """Which generations of a table an installation may replace and remove.

    Args:
        installation: The installation.
        table: The table.
        record: The table's record, or the record of the table's next generation; None if the table
            was never onboarded.
    """

    installation: Installation
    table: TableId
    record: TableRecord | None

    @classmethod
    def of(cls, record: TableRecord, installation: Installation) -> Ownership:
        """Return which generations of a record's table an installation may replace and remove."""
        return cls(installation, record.table, record)

    def is_other(self, attempt: str) -> bool:
        """Whether another installation made an attempt that this one has not taken over."""
        taken = () if self.record is None else self.record.taken_over
        return attempt not in taken and self.installation.is_of_another(attempt)

    def require(self, pointer: Pointer | None, folder: str) -> None:
        """Check that no other installation has published the generation that readers see.

        Args:
            pointer: The pointer; None if nothing is published.
            folder: The pointer's folder.

        Raises:
            OtherInstallationError: Another installation has published that generation.
        """
        if pointer is None or not self.is_other(pointer.attempt):
            return
        raise OtherInstallationError(
            f"the pointer in {folder} names generation {pointer.generation}, attempt"
            f" {pointer.attempt}, published at {pointer.published_at:%Y-%m-%d %H:%M:%S} UTC by"
            f" another installation, and {self._mine()}: two installations would publish over each"
            " other",
            remedy=self._remedy(),
            table=self.table,
            path=folder,
            field="lake.url",
        )

    def _mine(self) -> str:
        record = self.record
        if record is None or record.attempt is None:
            return f"table {self.table} has no generation of this one yet"
        return (
            f"the state store knows generation {record.generation}, attempt {record.attempt.id}, of"
            f" table {self.table}"
        )

    def _remedy(self) -> str:
        record, table = self.record, self.table
        if record is None or record.state is State.RETIRED:
            return (
                "Set another lake.url for this installation. If the other one is gone for good, for"
                f" example since its state store was lost, run `tributary onboard --take-over"
                f" {table}`."
            )
        apart = (
            f"Run `tributary offboard {table}` in one of the two, set another lake.url there, and"
            " onboard the table again. If the other one is gone for good, for example since its"
            f" state store was lost, run `tributary onboard --take-over --no-bootstrap {table}`"
        )
        if State.INCREMENTAL in (record.state, record.resume_to):
            return f"{apart}, then `tributary resync {table}`."
        return f"{apart}, then `tributary bootstrap {table}`."
