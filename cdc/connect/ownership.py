"""Shows which installation made a connector.

Two installations can use the same names on one Kafka Connect, for example if a tributary.yaml is
copied and the copy names another state store. If connectors did not show which installation made
them, each installation would change and delete the connectors of the other installation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.errors import OtherConnectorError

INSTALLATION = "tributary.installation"
"""The property of a connector's configuration that names the connector's installation.

Connect and Debezium ignore properties that they do not know. Connect keeps the property for as long
as the connector exists, and returns it with the connector's configuration.
"""


@dataclass(frozen=True)
class ConnectorOwner:
    """Marks an installation's connectors, and recognizes connectors of other installations.

    Args:
        installation: Returns the installation's name. If ``installation`` is None, connectors get
            no mark, and no connector counts as made by another installation.
    """

    installation: Callable[[], str] | None = None

    @property
    def mark(self) -> dict[str, str]:
        """The property that marks a connector as this installation's; empty if there is no mark."""
        return {} if self.installation is None else {INSTALLATION: self.installation()}

    def other(self, config: Mapping[str, str]) -> OtherConnectorError | None:
        """Return an error if a connector's configuration names another installation.

        The result is None for a connector that names no installation: an earlier version of
        Tributary made the connector, or an operator did.
        """
        if (made_by := config.get(INSTALLATION)) is None:
            return None
        mine = self.mark.get(INSTALLATION)
        if mine in (None, made_by):
            return None
        name = config.get("name", "")
        return OtherConnectorError(
            f"connector {name} is of installation {made_by}, and this one, by its state store, is"
            f" {mine}",
            remedy="Check state.url. If another installation uses the connector, leave it, and give"
            " this one names of its own: set other slot, publication and topic_prefix for the"
            " source, or name the source otherwise. If that installation is gone for good, for"
            " example since its state store was lost, run `tributary onboard --take-over` for the"
            " tables of this source and tier.",
            connector=name,
        )
