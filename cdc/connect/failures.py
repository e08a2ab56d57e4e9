"""Converts the Java stack trace of a failed connector into one sentence and a remedy."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^\s*Caused by: ", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:[a-z_][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: )?")
_DUMP = re.compile(r"\s*\[[^\[\]]*\]|\b\w*(?:Context|Info|Schema)\{[^{}]*\}")
_LENGTH = 400

_UNREACHABLE = r"connection to .* refused|connection attempt failed|unknownhost|could not connect"
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"password authentication failed|no password was provided|not permitted to log in"
        r"|access denied for user .*using password",
        "Check credentials.capture of the source, and that the worker's ConfigProvider reads the"
        " secret it refers to.",
    ),
    (
        r"no pg_hba\.conf entry",
        "Allow the worker's address in pg_hba.conf, for the database and for replication.",
    ),
    (
        r"must be superuser or replication role|permission denied",
        "Give the capture role REPLICATION, as `tributary check` shows. If a table of schema"
        " tributary is denied, run `tributary onboard` for a table of the source, which grants the"
        " rights on it.",
    ),
    (
        _UNREACHABLE,
        "Check that the worker reaches the primary; set endpoint_for_connect when it sees another"
        " address than this machine.",
    ),
    (
        r"database .* does not exist",
        "Check the database's name in primary and endpoint_for_connect of the source.",
    ),
    (
        r"replication slot .* is active",
        "Another reader has the slot, and can have moved it past changes that are in no topic. Stop"
        " that reader, which may be another installation with the same slot, publication or source"
        " name. Then run `tributary run` before anything restarts the connector: it marks the"
        " tables of this source and tier if changes are lost.",
    ),
    (
        r"all replication slots are in use|max_replication_slots",
        "Raise max_replication_slots on the primary, or drop a slot that nobody reads.",
    ),
    (
        r"max_wal_senders|remaining connection slots|too many connections",
        "Raise max_wal_senders or max_connections on the primary.",
    ),
    (
        r"publication .* does not exist|publication autocreation is disabled",
        "The publication is gone, and changes with it. Run `tributary run`, which marks the tables"
        " of this source and tier, then `tributary bootstrap` for them, which recreates the"
        " publication and the slot.",
    ),
    # The server has one code for all reasons for which it sends no binlog: 1236.
    (
        r"same server_uuid/server_id",
        "Another client reads the binlog of the primary with the same database.server.id, such as a"
        " connector of another installation with the same names, and the primary ends the reader"
        " that came first. Give one of the two connectors another database.server.id in Kafka"
        " Connect; Tributary keeps it. Then run `tributary retry`, which restarts failed tasks.",
    ),
    (
        r"exceeded max_allowed_packet",
        "Raise max_allowed_packet on the primary above the size of its largest event, then run"
        " `tributary retry`, which restarts failed tasks. If it is 1 GiB already, the file of the"
        " binlog is damaged: offboard all tables of this source and tier, then onboard them again.",
    ),
    (
        r"bogus data in log event|truncated in the middle of event|crc check|could not find next"
        r" log|event corruption",
        "A file of the primary's binlog is damaged or gone, and the connector cannot read past it."
        " Run FLUSH BINARY LOGS on the primary, offboard all tables of this source and tier, then"
        " onboard them again.",
    ),
    (
        r"impossible position|position > file size|not in the master's binlog"
        r"|has more gtids than the (?:master|source) has",
        "Run `tributary run`, which marks the tables of this source and tier, then `tributary"
        " bootstrap` for them. The primary does not have the stored position any more: it lost the"
        " end of its binlog in a crash, was restored, or is another server.",
    ),
    (
        r"gtid state requested|could not find first log file name|binlog.*purged|purged.*binlog"
        r"|purged required binary logs|purged binary logs"
        r"|binlogoffsetcontext.*no longer available",
        "Changes after the stored position are no longer in the binlog. Run `tributary run`, which"
        " marks the tables of this source and tier, then `tributary bootstrap` for them; and keep"
        " binlogs for longer (binlog_expire_logs_seconds).",
    ),
    (
        r"no longer available|has already been removed|can no longer get changes"
        r"|slot .* (?:was|has been) invalidated|ahead of|offset.*behind|wal_status",
        "Changes between the stored position and the slot are gone. Run `tributary run`, which"
        " marks the tables of this source and tier, then `tributary bootstrap` for them.",
    ),
    (
        r"columns that differ only by case",
        "Rename one of the columns of that table on the source, which need not be one that is"
        " captured; then run `tributary retry`, which restarts failed tasks.",
    ),
    (
        r"columntype\.bycode\(int\)\" is null|\bcompressed'",
        "Store these columns without COMPRESSED, in all tables that `tributary check` names. The"
        " connector cannot read past them in the binlog: offboard all of its tables, then onboard"
        " them again.",
    ),
    (
        r"ddl statement couldn't be parsed",
        "Its grammar lacks a clause of the named statement, and it cannot read past the statement"
        " in the binlog: offboard all of its tables, then onboard them again. Undo the clause"
        " before that if SHOW CREATE TABLE shows it, since the connector reads that, too. Write"
        " such clauses in a comment that only the server executes: ALTER TABLE ... /*M! ... */.",
    ),
    (
        r"invalid date '",
        "A row has a date that no calendar has, as 2024-02-31 (ALLOW_INVALID_DATES), and the"
        " connector cannot read past it in the binlog: give such rows real dates, offboard all of"
        " its tables, then onboard them again.",
    ),
    (
        r"schema isn't known to this connector",
        "The connector cannot learn this definition any more: the binlog lacks it"
        " (sql_log_bin = 0), or the capture login could not see it when the connector first"
        " started. Run `tributary offboard` for the named table, give it another tier (`tier` in"
        " its settings), then run `tributary onboard` for it. If two servers of MariaDB write in"
        " one GTID domain, offboard all tables of this source and tier instead, and onboard them"
        " again.",
    ),
    (
        r"internal schema size",
        "Rows of the named table have another number of columns in the binlog than in the"
        " connector's definition. Without GTIDs, a restarted connector reads rows from before an"
        " ALTER TABLE by the definition after it; on MariaDB, a UNIQUE index on a long column adds"
        " a hidden column, and a connector skips definitions if two servers write in one GTID"
        " domain. The connector cannot read past the row: drop such an index, offboard all of its"
        " tables, then onboard them again.",
    ),
    (
        r"failed to properly convert data value",
        "The named column has a value that Debezium cannot send: an array with NaN or a NULL in it,"
        " a timetz whose offset has seconds, or a large array, vector or geometry that an update"
        " left unchanged. The event is in the log, and no change on the source takes it"
        " out. Correct the value, or set REPLICA IDENTITY FULL for the table, which helps against"
        " unchanged values in later updates. Then offboard all tables of this source and tier, and"
        " onboard them again. In a tier of its own (`tier` in its settings), such a table stops no"
        " other.",
    ),
    (
        r"recordtoolarge|message\.max\.bytes|max\.request\.size",
        "Raise max.message.bytes of the topic and kafka.topic.max_message_bytes. Then run"
        " `tributary onboard` for the table, which sets the limit of the connector's producer.",
    ),
    (
        r"unknown_topic_or_partition|unknowntopicorpartition|not present in metadata",
        "A topic is missing. Run `tributary onboard` for its table: it creates the topic.",
    ),
    (
        r"topicauthorization|clusterauthorization|transactionalidauthorization|saslauthentication",
        "Give the worker's Kafka user the ACLs that `tributary check` lists.",
    ),
    (
        r"offsetstoragewriter is already flushing",
        "Run `tributary retry`, which restarts failed tasks. This is an error of Kafka Connect"
        " itself, after which a restart loses nothing.",
    ),
    (
        r"registryclient|restclientexception|apicurio|schema registry",
        "Check that the worker reaches the schema registry (connect.registry_url) and may write.",
    ),
    (
        r"configprovider|could not (?:read|find) .*(?:file|path|env)|config provider",
        "Enable the ConfigProvider on the worker and let it read the secret (connect.secrets"
        " overrides the reference).",
    ),
    (
        r"exactly-once|exactly once",
        "Set exactly.once.source.support=enabled on every worker, or connect.exactly_once: false.",
    ),
)

_OUTAGE = re.compile(
    r"connection (?:to .* )?(?:was )?refused|connection attempt failed|connection reset|broken pipe"
    r"|no route to host|network is unreachable|connect timed out|read timed out"
    r"|unknownhost|temporary failure in name resolution|name or service not known"
    r"|could not connect|communications link failure|unable to connect to the m\w+ database"
    r"|i/o error occurred while sending to the backend|this connection has been closed"
    r"|database connection failed when (?:reading|writing)"
    r"|the database system is (?:starting up|shutting down|in recovery|not yet accepting)"
    r"|terminating connection due to administrator command|server shutdown in progress"
    r"|unexpected end of stream|failed to read next byte|client is not connected",
    re.IGNORECASE,
)
"""Matches phrases by which a stack trace shows that the source database is unreachable."""


def explain(trace: str) -> str:
    """Summarize a stack trace of Kafka Connect in one line: outermost message and root cause."""
    parts = [part for part in _CAUSE.split(trace.strip()) if part]
    if not parts:
        return "no reason was given"
    outer, root = _headline_of_exception(parts[0]), _headline_of_exception(parts[-1])
    return outer if outer == root or root in outer else f"{outer} (cause: {root})"


def remedy(trace: str, default: str) -> str:
    """Return the remedy for a connector's failure, chosen by the stack trace in Kafka Connect.

    Args:
        trace: The stack trace.
        default: The remedy if the stack trace shows no known failure.
    """
    for pattern, advice in _REMEDIES:
        if re.search(pattern, trace, re.IGNORECASE):
            return advice
    return default


def is_outage(trace: str) -> bool:
    """Return whether a stack trace of Kafka Connect shows that the source is unreachable.

    The result is False if waiting does not help, for example after a wrong password.
    """
    if not _OUTAGE.search(trace):
        return False
    first = next((pattern for pattern, _ in _REMEDIES if re.search(pattern, trace, re.I)), None)
    return first is None or first == _UNREACHABLE


def _headline_of_exception(text: str) -> str:
    """Return an exception's message from a Connect trace, in one line, without dumps of objects."""
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith("at "):
            break
        if line.strip():
            lines.append(line.strip())
    headline, before = _EXCEPTION.sub(_exception_name, " ".join(lines), count=1), ""
    while headline != before:  # dumps of Java objects nest
        before, headline = headline, _DUMP.sub("", headline)
    return headline[:_LENGTH]


def _exception_name(match: re.Match[str]) -> str:
    """Return the replacement for a Java exception's class name in a message of Kafka Connect.

    The replacement is the class name without its package, or an empty string if the name says
    nothing about the failure, for example ``ConnectException``.
    """
    name = match["name"]
    return (
        ""
        if name in {"ConnectException", "DebeziumException", "RuntimeException"}
        else (f"{name}: " if match[0].endswith(": ") else name)
    )
