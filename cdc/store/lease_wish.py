"""Registers that a process waits for a lease.

A holder that still has many changes to apply releases its lease early if a process waits for
the lease.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import sqlalchemy as sa

from cdc.errors import StateError
from cdc.store.tables import lease_wishes

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.state_store import Store

WISH_S = 10.0
"""Seconds after which a wish (a request for a lease) expires unless the process renews it."""

_log = logging.getLogger(__name__)


class LeaseWish:
    """A waiting process's request to the holder of a lease to release the lease.

    The request expires unless it is renewed.

    Args:
        store: The state store that keeps leases.
        resource: The name of the leased resource.
    """

    def __init__(self, store: Store, resource: str) -> None:
        self._store = store
        self._resource = resource
        self._waiter = str(uuid.uuid4())

    def renew(self) -> None:
        """Store the request for a lease, or extend its expiry."""
        expires_at = self._store.clock + WISH_S
        mine = lease_wishes.c.waiter == self._waiter
        with self._store.transaction() as connection:
            renewal = sa.update(lease_wishes).where(mine).values(expires_at=expires_at)
            if connection.execute(renewal).rowcount:
                return
            expired = lease_wishes.c.expires_at <= self._store.clock
            connection.execute(sa.delete(lease_wishes).where(expired))
            connection.execute(
                sa.insert(lease_wishes).values(
                    waiter=self._waiter, resource=self._resource, expires_at=expires_at
                )
            )

    def withdraw(self) -> None:
        """Delete the request for a lease.

        If the state store does not answer, no error is raised, and the request expires by itself.
        """
        try:
            with self._store.transaction() as connection:
                mine = lease_wishes.c.waiter == self._waiter
                connection.execute(sa.delete(lease_wishes).where(mine))
        except StateError as error:
            _log.warning("the wish for %s stays until it expires: %s", self._resource, error)


def is_wanted(store: Store, resource: str) -> bool:
    """Whether a process waits for the lease on a resource."""
    with store.transaction() as connection:
        return wished(connection, store, resource)


def wished(connection: Connection, store: Store, resource: str) -> bool:
    """Whether a process waits for the lease on a resource, asked within a transaction."""
    query = sa.select(sa.func.count()).where(
        lease_wishes.c.resource == resource, lease_wishes.c.expires_at > store.clock
    )
    return bool(connection.execute(query).scalar())
