"""Finds transactions that a server has lost, even if later transactions have the same GTIDs.

After a crash of its machine, a server can lack the last transactions of its binlog. The binlog then
continues in a new file. Each file begins with a list of the GTIDs in all files before it, and this
list never changes. So a lost transaction is missing from the list of the new file, even if the
server has given its GTID to a later transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc.errors import SourceError
from cdc.log.binlog_position import BinlogPosition
from cdc.log.continuity import Continuity, LogMark, Sent, SentTransaction
from cdc.log.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.sources.mysql import primary
from cdc.sources.mysql.connection import Connections, Session

_START = 4
"""Offset of the first event in a binlog file, in bytes."""


def continuity(connections: Connections, earlier: LogMark | None, sent: Sent) -> Continuity | None:
    """Compare the binlog of a MySQL or MariaDB primary with an earlier mark and sent transactions.

    Args:
        connections: Opens sessions.
        earlier: The mark (the binlog's end) in an earlier call's result; None without an earlier
            call.
        sent: Reads the transactions that the connector has sent. ``sent`` is called only if the
            server has begun a new binlog file since the mark.

    Returns:
        The comparison; None if the server has no GTIDs, or no binlog.
    """
    kind = connections.config.kind
    with connections.open("admin") as session:
        executed = _executed_gtids(session, kind)
        if executed is None:
            return None
        server, _ = primary.identity(session, kind)
        files = [str(row[0]) for row in session.rows("SHOW BINARY LOGS")]
        unlogged = _unlogged_gtids(session, kind)
    mark = LogMark(server, files[-1], str(executed))
    if earlier is None or earlier.server != server:
        return Continuity(earlier, mark)
    if begins_again(earlier.file, files[-1]):
        return Continuity(
            earlier,
            mark,
            f"writes its file {files[-1]} and had written {earlier.file} before: it was restored to"
            " an earlier state, its binlog was reset, or it was built again",
        )
    if file_after(earlier.file, files) is None:
        return Continuity(earlier, mark)
    for file, known in known_by_file(kind, earlier, sent(earlier.file), files).items():
        after = file_after(file, files)
        lacking = after and known.without(_gtids_before_file(connections, after).joined(unlogged))
        if lacking:
            return Continuity(
                earlier,
                mark,
                f"lacks transactions {lacking}, which the server had executed before its file"
                f" {after} began: a crash of its machine lost them, or the server was restored to"
                " an earlier state. It gives their GTIDs to later transactions, which the connector"
                " skips",
            )
    return Continuity(earlier, mark)


def known_by_file(
    kind: str, earlier: LogMark, sent: Iterable[SentTransaction], files: Sequence[str]
) -> Mapping[str, GtidSet]:
    """Return, for each known binlog file, the known GTIDs from before the next file began.

    The known files and GTIDs are those of ``earlier`` and ``sent``. The newest file is left out,
    since only the list of GTIDs at the beginning of a later file can show a loss.

    Args:
        kind: ``mysql`` or ``mariadb``.
        earlier: The mark in the result of an earlier `continuity`.
        sent: The transactions that the connector has sent. Transactions of other servers, and of
            files before the mark's file, are ignored.
        files: The files that the server has, in ascending order.
    """
    known = {earlier.file: [earlier.executed]}
    first = BinlogPosition(earlier.file, 0).number
    # On MariaDB, the number of the server follows an @.
    server = earlier.server.rpartition("@")[2]
    for one in sent:
        # A loss before the earlier look was counted then.
        if one.server == server and BinlogPosition(one.file, 0).number >= first:
            known.setdefault(one.file, []).append(one.gtid)
    # A file can have a heartbeat per second. So all of its GTIDs are parsed in one call.
    return {
        file: gtids(",".join(filter(None, found)), kind)
        for file, found in known.items()
        if file_after(file, files) is not None
    }


def begins_again(earlier: str, newest: str) -> bool:
    """Whether a MySQL or MariaDB server numbers its binlog files from the beginning again.

    If so, the newest file has a smaller number than the former newest file. Files with different
    base names are not compared, and the result is False.

    Args:
        earlier: The file that was the newest one at an earlier time.
        newest: The newest file now.
    """
    known, found = BinlogPosition(earlier, 0), BinlogPosition(newest, 0)
    return found.base == known.base and found.number < known.number


def file_after(earlier: str, files: Iterable[str]) -> str | None:
    """Return the file after ``earlier`` in a MySQL or MariaDB binlog; None if no file follows.

    Args:
        earlier: The given file, which may be purged.
        files: The files that the server has, in ascending order.
    """
    known = BinlogPosition(earlier, 0)
    for file in files:
        found = BinlogPosition(file, 0)
        if found.base == known.base and found.number > known.number:
            return file
    return None


def gtids(value: object, kind: str) -> GtidSet:
    """Parse a GTID set that a MySQL or MariaDB server has returned; None is the empty set."""
    text = str(value or "")
    return MysqlGtidSet.parse(text) if kind == "mysql" else MariadbGtidSet.parse(text)


def _executed_gtids(session: Session, kind: str) -> GtidSet | None:
    """Return the GTIDs that a MySQL or MariaDB server has executed; None if it logs no GTIDs."""
    logs = str(session.value("SELECT @@global.log_bin")) not in ("0", "OFF")
    if not logs or not primary.has_gtids(session, kind):
        return None
    found = primary.executed_position(session, kind)
    # The mode may have changed between the two queries.
    return found if isinstance(found, MysqlGtidSet | MariadbGtidSet) else None


def _unlogged_gtids(session: Session, kind: str) -> GtidSet:
    """Return a MySQL server's executed GTIDs that no binlog file has; none for MariaDB.

    After a crash, InnoDB can still have a transaction that the binlog has lost. MySQL never gives
    the GTID of this transaction to a later one. So the connector does not skip a later transaction.
    The source's tables have the changes of this transaction, so it does not count as lost.
    """
    return gtids(session.value("SELECT @@global.gtid_purged") if kind == "mysql" else "", kind)


def _gtids_before_file(connections: Connections, file: str) -> GtidSet:
    """Read from MySQL or MariaDB the GTIDs in all binlog files before the given file.

    The given file begins with the list of these GTIDs.
    """
    kind = connections.config.kind
    if kind == "mariadb":
        with connections.open("admin") as session:
            found = session.value("SELECT binlog_gtid_pos(%s, %s)", (file, _START))
        if found is None:
            raise SourceError(
                f"{connections.where(on_replica=False)} no longer has file {file} of its binlog:"
                " it was purged during a look",
                remedy="Nothing to do: the next run looks again.",
            )
        return gtids(found, kind)
    # Only the connector's login may read the binlog's events. The second event has the GTIDs.
    with connections.open("capture") as session:
        events = session.rows("SHOW BINLOG EVENTS IN %s LIMIT 2", (file,))
    (found,) = [event[5] for event in events if event[2] == "Previous_gtids"]
    return gtids(found, kind)
