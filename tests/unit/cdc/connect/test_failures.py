from __future__ import annotations

import pytest

from cdc.connect.failures import explain, is_outage, remedy

CONVERSION = """\
org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event \
producer. This connector will be stopped.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.kafka.connect.errors.ConnectException: Error while processing event at \
offset {lsn_proc=52153040, messageType=INSERT}
\tat io.debezium.pipeline.EventDispatcher.dispatchDataChangeEvent(EventDispatcher.java:354)
\t... 10 more
Caused by: io.debezium.DebeziumException: Failed to properly convert data value for \
'public.types.a' of type _numeric
\tat io.debezium.relational.TableSchemaBuilder.lambda(TableSchemaBuilder.java:318)
\t... 19 more
"""

LOST = """\
io.debezium.DebeziumException: The connector is trying to read change stream starting at \
PostgresOffsetContext [sourceInfo=source_info[server='s'db='shop', lsn=LSN{0/3CEE880}], \
transactionContext=TransactionContext [perTableEventCount={}], dataCollectionsToSnapshot=[]], \
but this is no longer available on the server. Reconfigure the connector to use a snapshot.
\tat io.debezium.connector.common.BaseSourceTask.validateSchemaHistory(BaseSourceTask.java:165)
"""

PURGED = """\
io.debezium.DebeziumException: The connector is trying to read change stream starting at \
BinlogOffsetContext{sourceInfoSchema=Schema{io.debezium.connector.mysql.Source:STRUCT}, \
sourceInfo=BinlogSourceInfo{currentGtid='null', currentBinlogFilename='binlog.000001', \
tableIds=, databaseName='null'}, snapshotCompleted=false}, but this is no longer available on the \
server. Reconfigure the connector to use a snapshot mode when needed.
\tat io.debezium.connector.common.BaseSourceTask.validateSchemaHistory(BaseSourceTask.java:165)
"""


def ended_by(words: str) -> str:
    """Debezium's error if the server sends no binlog: it has the same code for every reason."""
    return (
        f"io.debezium.DebeziumException: {words} Error code: 1236; SQLSTATE: HY000.\n\tat a.b(C)\n"
        f"Caused by: com.github.shyiko.mysql.binlog.network.ServerException: {words}"
    )


def test_a_trace_becomes_its_outermost_message_and_its_root_cause() -> None:
    assert explain(CONVERSION) == (
        "An exception occurred in the change event producer. This connector will be stopped."
        " (cause: Failed to properly convert data value for 'public.types.a' of type _numeric)"
    )


@pytest.mark.parametrize("trace", [LOST, PURGED])
def test_dumps_of_java_objects_do_not_hide_the_sentence(trace: str) -> None:
    said = explain(trace)
    assert "no longer available on the server" in said
    assert "sourceInfo" not in said


def test_names_of_exceptions_stay_where_they_say_something() -> None:
    trace = "a.b.ConnectException: Outer\n\tat x\nCaused by: org.postgresql.util.PSQLException: No"
    assert explain(trace) == "Outer (cause: PSQLException: No)"
    assert explain("a.b.SomeException\n\tat x") == "SomeException"


def test_a_message_without_a_trace_is_itself() -> None:
    assert explain("Connector x not found") == "Connector x not found"
    assert explain("") == "no reason was given"


def test_long_messages_are_cut() -> None:
    assert len(explain("x" * 10_000)) <= 400


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        # What Debezium 3.7.0 and Connect 4.3.1 were seen to say.
        ('FATAL: password authentication failed for user "c"', "credentials.capture"),
        ("FATAL: must be superuser or replication role to start walsender", "REPLICATION"),
        ("ERROR: permission denied for table heartbeat", "`tributary onboard`"),
        ("Connection to 127.0.0.1:1 refused. Check that", "endpoint_for_connect"),
        ("Error while validating: The connection attempt failed.", "endpoint_for_connect"),
        ('FATAL: database "nope" does not exist', "database's name"),
        ("Publication autocreation is disabled, please create one", "tributary run"),
        ("This worker does not have exactly-once source support enabled.", "exactly.once.source"),
        ("Access denied for user 'c'@'h' (using password: YES)", "credentials.capture"),
        (LOST, "between the stored position and the slot"),
        (PURGED, "no longer in the binlog"),
        ("io.apicurio.rest.client.error.RestClientException", "connect.registry_url"),
        ('replication slot "s" is active for PID 7', "Another reader"),
        ("org.apache.kafka.common.errors.RecordTooLargeException: 20", "max.message.bytes"),
        ("ConnectException: OffsetStorageWriter is already flushing", "`tributary retry`"),
        ("no pg_hba.conf entry for replication connection", "pg_hba.conf"),
        ("no viable alternative at input 'CREATE TABLE o (t text COMPRESSED'", "COMPRESSED"),
        ("extraneous input 'COMPRESSED' expecting {<EOF>, '-'}", "COMPRESSED"),
        ('of "a.b.ColumnType.byCode(int)" is null', "COMPRESSED"),
        (
            "Error processing row in t, internal schema size 3, but row size 2 , restart connector"
            " with schema recovery mode.",
            "offboard all of its tables, then onboard them again",
        ),
        ("table shop.t whose schema isn't known to this connector", "in one GTID domain"),
        # Words of MySQL 9.7 and MariaDB 10.11, with the error code 1236.
        (ended_by("A slave with the same server_uuid/server_id as this slave"), "server.id in K"),
        (ended_by("A replica with the same server_uuid/server_id as this re"), "server.id in K"),
        (ended_by("log event entry exceeded max_allowed_packet; Increase m"), "Raise max_allowed"),
        (ended_by("event read from binlog did not pass crc check"), "damaged or gone"),
        (ended_by("binlog truncated in the middle of event; consider out"), "damaged or gone"),
        (ended_by("could not find next log"), "damaged or gone"),
        (ended_by("Client requested source to start replication from pos"), "default"),
        (
            ended_by("Client requested source to start replication from position > file size"),
            "does not have the stored position",
        ),
        (
            ended_by(
                "Error: connecting slave requested to start from GTID 0-1-5, which is not in"
                " the master's binlog"
            ),
            "does not have the stored position",
        ),
        (
            ended_by(
                "Could not find GTID state requested by slave in any binlog files. Probably"
                " the slave state is too old and required binlog files have been purged."
            ),
            "no longer in the binlog",
        ),
        (
            ended_by("Could not find first log file name in binary log index file"),
            "no longer in the binlog",
        ),
        (
            ended_by("Cannot replicate because the source purged required binary logs. Repli"),
            "no longer in the binlog",
        ),
        (ended_by("words of a later version"), "default"),
    ],
)
def test_known_failures_have_their_remedy(said: str, advice: str) -> None:
    assert advice in remedy(said, "default")


def test_unknown_failures_get_the_default() -> None:
    assert remedy("java.lang.NullPointerException", "default") == "default"


@pytest.mark.parametrize(
    "cause",
    [
        "org.postgresql.util.PSQLException: Connection to db:5432 refused. Check that the hostname",
        "org.postgresql.util.PSQLException: FATAL: the database system is starting up",
        "org.postgresql.util.PSQLException: FATAL: the database system is shutting down",
        "org.postgresql.util.PSQLException: Database connection failed when reading from copy",
        "org.postgresql.util.PSQLException: FATAL: terminating connection due to administrator"
        " command",
        "com.mysql.cj.jdbc.exceptions.CommunicationsException: Communications link failure",
        "io.debezium.DebeziumException: Unable to connect to the MySQL database at db:3306 with"
        " user 'cdc': Connection refused",
        "java.net.UnknownHostException: db",
        "java.net.SocketException: Connection reset",
    ],
)
def test_a_source_that_is_away_is_an_outage(cause: str) -> None:
    trace = f"org.apache.kafka.connect.errors.ConnectException: Stopped\n\tat x\nCaused by: {cause}"
    assert is_outage(trace)


@pytest.mark.parametrize(
    "trace",
    [
        CONVERSION,
        LOST,
        PURGED,
        "PSQLException: Connection attempt failed\nCaused by: FATAL: password authentication failed"
        ' for user "cdc"',
        "Communications link failure\nCaused by: Error code: 1236; binlog purged",
    ],
)
def test_what_waiting_does_not_repair_is_no_outage(trace: str) -> None:
    assert not is_outage(trace)
