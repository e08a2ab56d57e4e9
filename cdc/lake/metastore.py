"""Points the names of lake tables in a Hive Metastore at the published generations.

The metastore stores a table's path three times: as the table's location, as a property of its
serde, and in the location of each partition. Each engine reads one of the three. So all three are
changed together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError
from cdc.runtime.failpoints import crash
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_BOUNDS = {
    "hive.metastore.client.socket.timeout": ("600s", "60s"),
    "hive.metastore.connect.retries": ("3", "1"),
}
"""Limits of a request to the metastore: for each of Hive's settings, the default and a new value.

If a team has set another value than the default, this value stays. The new values are smaller than
the defaults: no table is examined while a request waits, and a metastore that hangs must cause no
more than a warning.
"""
_NEXT, _FORMER = "__next", "__former"
"""Suffixes of the names of a table's new and former entry, while the new one is put in place."""


class OtherTableError(LakeError):
    """A name in the metastore belongs to another table."""


@dataclass(frozen=True)
class CatalogEntry:
    """A lake table's entry in the metastore.

    Args:
        database: The entry's database. It is created if it is missing.
        name: The entry's name.
        table_base: The table's folder, which contains all its generations.
        path: Base path of the published generation.
        partition_by: The table's partition columns.
    """

    database: str
    name: str
    table_base: str
    path: str
    partition_by: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


def reach(spark: SparkSession, metastore: str) -> int:
    """Check that the Hive Metastore answers, and return the number of its databases.

    Raises:
        LakeError: The metastore cannot be reached, or refuses the request.
    """
    with _metastore_client(spark, metastore, "the databases could not be listed") as client:
        return int(client.getAllDatabases().size())


def show(spark: SparkSession, metastore: str, entry: CatalogEntry) -> None:
    """Make a table's name in the metastore refer to a path, with current columns and partitions.

    If the name refers to another generation, a new entry replaces the name's entry. For a table
    without partitions, one request replaces the entry. The metastore can refuse this request, for
    example because of a column's new type. After a refusal, and for a table with partitions, two
    renames replace the entry. Between the two renames, for milliseconds, the name is missing. If
    the process dies between the renames, the next call finishes the replacement.

    Args:
        spark: The session, whose JVM has the metastore's client.
        metastore: The metastore's URI.
        entry: The table's new entry.

    Raises:
        LakeError: The metastore cannot be reached or refuses the request, or the name belongs to
            another table.
    """
    with _metastore_client(spark, metastore, _entry_not_updated(entry), entry.path) as client:
        _finish_name_move(spark, client, entry)
        at = _entry_location(spark, client, entry, entry.name)
        if at is None or at == _metastore_path(spark, entry.path):
            _register_entry(spark, metastore, entry, entry.name)
        else:
            _drop_entry(client, entry, _NEXT)
            _register_entry(spark, metastore, entry, entry.name + _NEXT)
            crash("catalog.before_move")
            _move_name(spark, client, entry)
        for left in (_NEXT, _FORMER):
            _drop_entry(client, entry, left)


def forget(spark: SparkSession, metastore: str, entry: CatalogEntry) -> None:
    """Remove a table's name from the metastore, but not the table's data.

    Raises:
        OtherTableError: The name belongs to another table, which keeps the name.
        LakeError: The metastore cannot be reached, or refuses the request.
    """
    with _metastore_client(spark, metastore, _entry_not_updated(entry), entry.path) as client:
        for suffix in ("", _NEXT, _FORMER):
            if _entry_location(spark, client, entry, entry.name + suffix) is not None:
                _drop_entry(client, entry, suffix)


def _finish_name_move(spark: SparkSession, client: Any, entry: CatalogEntry) -> None:
    """Restore a name that is missing because a process died between the two renames of `show`."""
    if client.tableExists(entry.database, entry.name):
        return
    for suffix in (_NEXT, _FORMER):
        if _entry_location(spark, client, entry, entry.name + suffix) is not None:
            _rename_entry(client, entry, suffix, "")
            return


def _move_name(spark: SparkSession, client: Any, entry: CatalogEntry) -> None:
    """Replace the entry of a name in the metastore by the new entry, as `show` describes."""
    if not entry.partition_by:
        # Without partitions, one object of the metastore describes the whole table.
        table = client.getTable(entry.database, entry.name + _NEXT)
        table.setTableName(entry.name)
        try:
            client.alter_table(entry.database, entry.name, table)
        except Py4JJavaError as error:
            what = "the metastore refuses to replace %s in one step, so two renames replace it: %s"
            _log.info(what, entry, error.java_exception)
        else:
            return
    _drop_entry(client, entry, _FORMER)
    _rename_entry(client, entry, "", _FORMER)
    crash("catalog.between_renames")
    _rename_entry(client, entry, _NEXT, "")


def _rename_entry(client: Any, entry: CatalogEntry, of: str, to: str) -> None:
    """Rename an entry of the metastore: suffix ``to`` replaces suffix ``of`` in the name."""
    table = client.getTable(entry.database, entry.name + of)
    table.setTableName(entry.name + to)
    client.alter_table(entry.database, entry.name + of, table)


def _drop_entry(client: Any, entry: CatalogEntry, suffix: str) -> None:
    """Remove an entry from the metastore, but not the table's data.

    The name of the removed entry is the name of ``entry``, followed by ``suffix``.
    """
    client.dropTable(entry.database, entry.name + suffix, False, True)


def _entry_location(spark: SparkSession, client: Any, entry: CatalogEntry, name: str) -> str | None:
    """Return the location to which a name refers; None if the metastore does not have the name.

    Raises:
        OtherTableError: The location is outside of the table's folder. So the name belongs to
            another table.
    """
    if not client.tableExists(entry.database, name):
        return None
    at = str(client.getTable(entry.database, name).getSd().getLocation())
    base = _metastore_path(spark, entry.table_base)
    if not at.startswith(base + "/"):
        raise OtherTableError(
            f"the name {entry.database}.{name} points to {at}, which is not in {base}",
            remedy="Drop that name, or give this table another one: catalog.database and"
            " catalog.table are templates.",
            path=entry.path,
            field="catalog",
        )
    return at


def _register_entry(spark: SparkSession, metastore: str, entry: CatalogEntry, name: str) -> None:
    """Run Hudi's sync tool, which creates or updates the entry with this name in the metastore."""
    properties = java_class(spark, "java.util.Properties")()
    kind = "MultiPartKeysValueExtractor" if entry.partition_by else "NonPartitionedExtractor"
    for key, value in {
        "hoodie.datasource.meta.sync.base.path": entry.path,
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.metastore.uris": metastore,
        "hoodie.datasource.hive_sync.database": entry.database,
        "hoodie.datasource.hive_sync.table": name,
        "hoodie.datasource.hive_sync.partition_fields": ",".join(entry.partition_by),
        "hoodie.datasource.hive_sync.partition_extractor_class": f"org.apache.hudi.hive.{kind}",
        "hoodie.datasource.hive_sync.support_timestamp": "true",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.hive_sync.auto_create_database": "true",
    }.items():
        properties.setProperty(key, value)
    none = java_class(spark, "org.apache.hudi.common.util.Option").empty()
    tool = java_class(spark, "org.apache.hudi.hive.HiveSyncTool")
    syncing = tool(properties, _hive_conf(spark, metastore), none)
    try:
        syncing.syncHoodieTable()
    finally:
        syncing.close()


def _entry_not_updated(entry: CatalogEntry) -> str:
    """Return the beginning of the message for a metastore's entry that could not be updated."""
    return f"the name {entry} could not be updated"


@contextmanager
def _metastore_client(
    spark: SparkSession, metastore: str, failure: str, path: str | None = None
) -> Iterator[Any]:
    """Open a client of the metastore, and convert the errors of Java to LakeError.

    Args:
        spark: The session.
        metastore: The metastore's URI.
        failure: The beginning of an error's message.
        path: The lake table's path, for errors; None if the request concerns no table.
    """
    client = None
    try:
        client = java_class(spark, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient")(
            _hive_conf(spark, metastore)
        )
        yield client
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise LakeError(
            f"{failure} in the metastore {metastore}: {cause}",
            remedy="Check catalog.metastore and that it runs. The lake itself is up to date;"
            " the next run or the same command brings the name up to date as well.",
            path=path,
            field="catalog.metastore",
        ) from error
    finally:
        if client is not None:
            client.close()


def _hive_conf(spark: SparkSession, metastore: str) -> Any:
    """Return Hive's configuration for a client of the metastore, with the limits of `_BOUNDS`."""
    conf = java_class(spark, "org.apache.hadoop.hive.conf.HiveConf")(
        spark.sparkContext._jsc.hadoopConfiguration(),
        java_class(spark, "java.lang.Class").forName("org.apache.hadoop.hive.conf.HiveConf"),
    )
    conf.set("hive.metastore.uris", metastore)
    for name, (default, bound) in _BOUNDS.items():
        if conf.get(name) == default:
            conf.set(name, bound)
    return conf


def _metastore_path(spark: SparkSession, path: str) -> str:
    """Return a path with its scheme, for example ``file:/lake/t``, as the metastore stores it."""
    hadoop = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    return str(hadoop.getFileSystem(conf).makeQualified(hadoop).toString())
