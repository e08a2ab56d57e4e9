"""The installation: all processes that share one state store.

Two installations have neither records nor leases in common, but can have a lake in common. So
whatever both can find, such as a generation in the lake, must show which of them made it.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass

_MULTICAST = 1 << 40
"""The multicast bit of a UUID's node, which a random node must have set (RFC 9562, 6.10).

No address of a network card has this bit set, so no random node equals such an address.
"""
_NODE_BITS = 48


@dataclass(frozen=True)
class Installation:
    """The identity of an installation, which the state store keeps.

    The identity is a number. Each UUID that the installation makes is of version 1, and has this
    number as its node. An attempt's UUID is in the name of the attempt's folder, in the pointer and
    in each commit. So the folder, the pointer and the commit each show the installation without a
    further request.

    Args:
        node: A random number of 48 bits.
    """

    node: int

    @classmethod
    def new(cls) -> Installation:
        """Return the identity of a new installation."""
        return cls(secrets.randbits(_NODE_BITS) | _MULTICAST)

    @property
    def name(self) -> str:
        """The identity as text: the last 12 characters of each of the installation's UUIDs."""
        return f"{self.node:012x}"

    def new_attempt(self) -> uuid.UUID:
        """Return the UUID of a new attempt of this installation."""
        return uuid.uuid1(node=self.node)

    def shared_table(self, base_path: str) -> uuid.UUID:
        """Return this installation's UUID for the shared table at a path; it never changes."""
        of_path = uuid.uuid5(uuid.NAMESPACE_URL, base_path).int
        return uuid.UUID(int=of_path >> _NODE_BITS << _NODE_BITS | self.node, version=1)

    def is_of_another(self, attempt: str) -> bool:
        """Whether another installation made a UUID.

        Only a UUID of version 1 shows an installation. For any other text, the result is False.
        """
        try:
            made = uuid.UUID(attempt)
        except ValueError:
            return False
        return made.version == 1 and made.node != self.node
