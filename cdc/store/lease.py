"""Leases with expiry and fencing token: a table has one writer at a time, and so has a capture.

A lease expires by the database's clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from cdc.errors import FencedError, LeaseHeldError, StateError
from cdc.runtime.progress import NullProgress, Progress, shown_as
from cdc.runtime.waiting import wait_while
from cdc.store.lease_owner import Owner
from cdc.store.lease_wish import LeaseWish, is_wanted, wished
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from cdc.store.tables import leases
from schemas.table import TableId

DEFAULT_TTL_S = 60.0
"""Seconds until a lease expires unless it is renewed."""
_POLL_S = 0.5
_WAIT = "Wait for that process to end. After a crash the lease runs out by itself."

_log = logging.getLogger(__name__)

_Read = Callable[[Connection], object]
_ReadRecord = Callable[[Connection, TableRecord], object]
_Write = Callable[[Connection], object]


class Lease:
    """The right, until it expires, to write a table or to change a resource that tables share.

    Args:
        store: The state store that keeps leases.
        resource: The table, or the name of the shared resource.
        owner: The holder's name, which the errors of other processes show.
        ttl_s: Seconds until the lease expires unless it is renewed.

    The fencing token rises with each acquisition of the same resource, by any process.
    """

    def __init__(
        self, store: Store, resource: TableId | str, owner: str, *, ttl_s: float = DEFAULT_TTL_S
    ) -> None:
        self.what = resource if isinstance(resource, str) else f"table {resource}"
        self.owner = owner
        self.ttl_s = ttl_s
        self.token = 0
        self._store = store
        self._last_write: _Write | None = None
        self.resource = str(resource)
        self.about = {} if isinstance(resource, str) else {"table": resource}

    def acquire(self, *, gives_way: bool = False, read: _Read | None = None) -> int:
        """Take the lease in the state store, in one transaction.

        Args:
            gives_way: Whether to leave the lease to a process that waits for it.
            read: Called in the transaction after the lease is taken. So ``read`` sees all that an
                earlier holder stored before it released the lease.

        Returns:
            The fencing token.

        Raises:
            LeaseHeldError: Another process holds the lease; the error names the holder and the
                lease's expiry. Or ``gives_way`` is true, and a process waits for the lease.
        """
        clock, row = self._store.clock, leases.c.resource == self.resource
        free = sa.or_(leases.c.owner.is_(None), leases.c.expires_at <= clock)
        take = sa.update(leases).where(row, free).values(token=leases.c.token + 1, **self._taken())
        new = sa.insert(leases).values(resource=self.resource, token=1, **self._taken())
        try:
            with self._store.transaction() as connection:
                if gives_way and wished(connection, self._store, self.resource):
                    raise self._left_error()
                if connection.execute(take).rowcount == 1:
                    token = connection.execute(sa.select(leases.c.token).where(row)).scalar_one()
                else:
                    connection.execute(new)
                    token = 1
                if read is not None:
                    read(connection)
        except IntegrityError:
            self.token = self._take_over(read)
        else:
            self.token = token
        return self.token

    def held_by_other(self) -> LeaseHeldError | None:
        """Return an error that names the lease's holder; None if the lease can be taken now."""
        row = leases.c.resource == self.resource
        held = sa.and_(row, leases.c.owner.is_not(None), leases.c.expires_at > self._store.clock)
        with self._store.transaction() as connection:
            found = connection.execute(sa.select(leases).where(held)).first()
        holder = None if found is None else Owner.parse(found.owner)
        if found is None or (holder is not None and holder.has_died()):
            return None
        return self._lease_held_error(found, holder)

    def renew(self) -> None:
        """Extend the lease in the state store by a full term.

        An expired lease can be renewed unless another process has taken it.

        Raises:
            FencedError: Another process has taken the lease, or this process has released it.
        """
        with self.transaction():
            pass

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction of the state store that changes something only under this lease.

        The transaction first renews the lease, and so locks its row. No other process can take the
        lease until the transaction ends.

        Raises:
            FencedError: Another process has taken the lease, or this process has released it.
        """
        renewal = (
            sa.update(leases)
            .where(self._held_by_this())
            .values(expires_at=self._store.clock + self.ttl_s)
        )
        with self._store.transaction() as connection:
            if connection.execute(renewal).rowcount != 1:
                raise FencedError(
                    f"the lease on {self.what} was lost: another process has taken it over",
                    remedy="Nothing was committed after that; the process that holds it goes on.",
                    token=self.token,
                    **self.about,
                )
            yield connection

    def check(self) -> None:
        """Check that this process holds the lease, and renew it for another full term.

        Raises:
            FencedError: This process no longer holds the lease.
        """
        self.renew()

    def is_wanted(self) -> bool:
        """Whether another process waits for the lease."""
        return is_wanted(self._store, self.resource)

    def at_release(self, write: _Write | None) -> None:
        """Let `release` call ``write`` in its transaction, before the lease is released.

        So what is stored last needs no transaction of its own. If ``write`` fails, the error is
        logged, and the lease is released nevertheless. ``write`` is also called if this process has
        lost the lease.
        """
        self._last_write = write

    def release(self) -> None:
        """Release the lease; do nothing if this process no longer holds it."""
        write, self._last_write = self._last_write, None
        try:
            self._release(write)
        except Exception as error:  # whatever it is, the lease must not stay behind
            if write is None:
                raise
            _log.warning("the last facts about %s are not stored: %s", self.what, error)
            self._release(None)

    def _release(self, write: _Write | None) -> None:
        """Call ``write``, and release the lease in the same transaction.

        The lease comes last: while ``write`` waits for locks, another process that wants the lease
        does not wait for this transaction.
        """
        free = sa.update(leases).where(self._held_by_this()).values(owner=None, expires_at=0.0)
        with self._store.transaction() as connection:
            if write is not None:
                write(connection)
            connection.execute(free)

    def _taken(self) -> dict[str, Any]:
        """Return the values that this process writes to the lease's row when it takes the lease."""
        clock = self._store.clock
        return {"owner": self.owner, "taken_at": clock, "expires_at": clock + self.ttl_s}

    def _held_by_this(self) -> sa.ColumnElement[bool]:
        return sa.and_(
            leases.c.resource == self.resource,
            leases.c.token == self.token,
            leases.c.owner == self.owner,
        )

    def _take_over(self, read: _Read | None) -> int:
        """Take the lease from a dead process of this machine, without waiting for the expiry.

        Args:
            read: As in `acquire`.

        Returns:
            The fencing token.

        Raises:
            LeaseHeldError: The holder is alive, or is not visible from this process.
        """
        row = leases.c.resource == self.resource
        with self._store.transaction() as connection:
            found = connection.execute(sa.select(leases).where(row)).first()
        holder = None if found is None or found.owner is None else Owner.parse(found.owner)
        if found is not None and holder is not None and holder.has_died():
            take = (
                sa.update(leases)
                .where(row, leases.c.token == found.token, leases.c.owner == found.owner)
                .values(token=found.token + 1, **self._taken())
            )
            with self._store.transaction() as connection:
                taken = connection.execute(take).rowcount == 1
                if taken and read is not None:
                    read(connection)
            if taken:
                _log.info(
                    "took the lease on %s over from %s, which has died", self.what, holder.shown
                )
                return int(found.token) + 1
        raise self._lease_held_error(found, holder)

    def _left_error(self) -> LeaseHeldError:
        return LeaseHeldError(
            f"{self.what} is left to a process that waits for it", remedy=_WAIT, **self.about
        )

    def _lease_held_error(self, row: sa.Row[Any] | None, holder: Owner | None) -> LeaseHeldError:
        """Return the error that names the lease's holder and expiry, as far as known."""
        if row is None or row.owner is None:
            owner, until, expires = "a process that began or ended at the same moment", "", None
        else:
            owner = holder.shown if holder else row.owner
            expires = _lease_moment(row.expires_at)
            until = f"; its lease runs until {expires:%Y-%m-%d %H:%M:%S} UTC unless renewed"
        return LeaseHeldError(
            f"{self.what} is held by {owner}{until}",
            remedy=_WAIT,
            owner=owner,
            expires_at=expires.isoformat() if expires else None,
            **self.about,
        )


class Leases:
    """Takes leases in the name of one process, and renews them while they are held.

    Args:
        store: The state store that keeps leases.
        owner: The holder's name. By default, the name identifies this process, so that other
            processes of this machine can see whether this process has died.
        ttl_s: Seconds until a lease expires unless it is renewed. After a crash of this process,
            processes of other machines wait up to this long.
        progress: Shows the waits.
    """

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        ttl_s: float = DEFAULT_TTL_S,
        progress: Progress | None = None,
    ) -> None:
        self.owner = owner or str(Owner.current())
        self.ttl_s = ttl_s
        self._store = store
        self._progress = progress or NullProgress()

    @contextmanager
    def hold(
        self,
        resource: TableId | str,
        *,
        wait_s: float = 0.0,
        gives_way: bool = False,
        read: _Read | None = None,
    ) -> Iterator[Lease]:
        """Hold a lease for the length of a block, and renew it in the background.

        While this process waits, `Lease.is_wanted` returns True to the holder.

        Args:
            resource: The table, or the name of a resource that many tables share.
            wait_s: Bound of the wait for another process that holds the lease, in seconds.
            gives_way: Whether to raise `LeaseHeldError` at once if another process holds the lease
                or waits for it. If true, ``wait_s`` has no effect.
            read: Called in the transaction that takes the lease, after the lease is taken.

        Raises:
            LeaseHeldError: Another process still holds the lease at the end of the wait. Or
                ``gives_way`` is true, and another process holds the lease or waits for it.
        """
        lease = Lease(self._store, resource, self.owner, ttl_s=self.ttl_s)
        if gives_way:
            lease.acquire(gives_way=True, read=read)
        else:
            self._acquire(lease, wait_s, read)
        stop = threading.Event()
        renewal = threading.Thread(
            target=_keep_lease, args=(lease, stop), name=f"lease on {lease.what}", daemon=True
        )
        renewal.start()
        try:
            yield lease
        finally:
            stop.set()
            renewal.join()
            lease.release()

    @contextmanager
    def hold_record(
        self, record: TableRecord, *, gives_way: bool = False, read: _ReadRecord | None = None
    ) -> Iterator[tuple[Lease, TableRecord]]:
        """Hold the lease of a record's table, and read the newest record when the lease is taken.

        One transaction takes the lease and reads the record, since another process can have changed
        the record that the caller knows.

        Args:
            record: The table's record, as known before.
            gives_way: As in `hold`.
            read: Called in the same transaction, with the newest record.

        Raises:
            LeaseHeldError: As in `hold`.
        """
        newest = [record]

        def read_all(connection: Connection) -> None:
            newest[0] = self._store.newest_within(connection, record)
            if read is not None:
                read(connection, newest[0])

        with self.hold(record.resource, gives_way=gives_way, read=read_all) as lease:
            yield lease, newest[0]

    def held_by_other(self, resource: TableId | str) -> LeaseHeldError | None:
        """Return an error that names the lease's holder; None if the lease can be taken now."""
        return Lease(self._store, resource, self.owner, ttl_s=self.ttl_s).held_by_other()

    def _acquire(self, lease: Lease, wait_s: float, read: _Read | None) -> None:
        """Take the lease; wait at most ``wait_s`` seconds for its holder to release it."""

        def held() -> LeaseHeldError | None:
            try:
                lease.acquire(read=read)
            except LeaseHeldError as error:
                return error
            return None

        def held_again() -> LeaseHeldError | None:
            wish.renew()
            return held()

        if (error := held()) and wait_s > 0:
            wish = LeaseWish(self._store, lease.resource)
            try:
                with shown_as(f"wait for {lease.what}", self._progress) as task:
                    error = wait_while(held_again, timeout_s=wait_s, poll_s=_POLL_S, task=task)
            finally:
                wish.withdraw()
        if error:
            raise error


@dataclass(frozen=True)
class HeldLease:
    """A lease that a process holds, as the state store shows it.

    Args:
        owner: The holder's name.
        expires_at: The time, by the state store's clock, when the lease expires unless renewed.
        taken_at: When the process took the lease, by the same clock.
    """

    owner: str
    expires_at: datetime
    taken_at: datetime

    @property
    def abandoned(self) -> bool:
        """Whether the holder has certainly ended, so that another process can take the lease."""
        holder = Owner.parse(self.owner)
        return holder is not None and holder.has_died()


def held_leases(store: Store) -> dict[str, HeldLease]:
    """Return, with one SQL statement, a mapping from resource to lease, without expired leases.

    Raises:
        StateError: The state store cannot be used.
    """
    held = sa.and_(leases.c.owner.is_not(None), leases.c.expires_at > store.clock)
    with store.transaction() as connection:
        return {
            row.resource: HeldLease(
                row.owner, _lease_moment(row.expires_at), _lease_moment(row.taken_at)
            )
            for row in connection.execute(sa.select(leases).where(held))
        }


def _lease_moment(seconds: float) -> datetime:
    """Convert a lease's stored time, in seconds since 1970, to an aware time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc)


def _keep_lease(lease: Lease, stop: threading.Event) -> None:
    """Renew a lease in the state store, in the background, until it is lost or ``stop`` is set.

    The loss raises no error here; the next call of ``Lease.check`` raises one.
    """
    while not stop.wait(lease.ttl_s / 3):
        try:
            lease.renew()
        except FencedError as lost:
            _log.warning("%s", lost)
            return
        except StateError as error:
            # The store can answer again before the lease expires, so the next turn retries.
            _log.warning("the lease on %s could not be renewed: %s", lease.what, error)
