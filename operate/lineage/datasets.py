"""A table's datasets for OpenLineage: the source's table, the topic and the lake's table.

The names follow OpenLineage's specification of names, so that events of other programs about the
same data have the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_type_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.generated.base import DatasetFacet
from openlineage.client.naming.dataset import MySQL, Postgres

from cdc.config import PostgresSourceConfig
from cdc.rows.columns import META_COLUMNS
from schemas.catalog import Catalog
from schemas.table import DROPPED

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.table_state import LakeField, TableRecord
    from schemas.table import TableId

Facets = dict[str, DatasetFacet]
_OBJECT_STORES = {
    "s3a": "s3",
    "s3n": "s3",
    "s3": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
}
"""Maps the scheme of an object store's URLs in Hadoop to the scheme in OpenLineage."""


@dataclass(frozen=True)
class Name:
    """The name of a dataset in OpenLineage.

    Args:
        namespace: Where the dataset is, for example a server.
        name: The dataset's name there.
    """

    namespace: str
    name: str


def source_name(config: Config, table: TableId) -> Name | None:
    """Return a source table's name in OpenLineage; None if the source is no longer configured."""
    source = config.sources.get(table.source)
    if source is None:
        return None
    host, port = source.primary.host, str(source.primary.port)
    if isinstance(source, PostgresSourceConfig):
        database = source.primary.database
        postgres = Postgres(host, port, database, table.schema, table.name)
        return Name(postgres.get_namespace(), postgres.get_name())
    # The specification has no MariaDB. Other programs take the scheme of its JDBC URLs.
    return Name(
        f"{source.kind}://{host}:{port}", MySQL(host, port, table.schema, table.name).get_name()
    )


def topic_name(config: Config, topic: str) -> Name:
    """Return the name of a topic in OpenLineage, with the first of the configured brokers."""
    return Name(f"kafka://{config.kafka.bootstrap_servers.split(',')[0].strip()}", topic)


def lake_name(url: str) -> Name:
    """Return a lake table's name in OpenLineage: its folder, above the folders of its generations.

    The generation's folder is not part of the name. The generation's folder is named like a
    partition. So clients of OpenLineage that cut partitions off a name get this name, too.
    """
    parts = urlsplit(url)
    path = unquote(parts.path) if parts.scheme == "file" else parts.path
    if parts.scheme in ("", "file"):
        return Name("file", path if parts.scheme else url)
    scheme = _OBJECT_STORES.get(parts.scheme)
    if scheme is None:
        return Name(f"{parts.scheme}://{parts.netloc}", path)
    return Name(f"{scheme}://{parts.netloc}", path.lstrip("/"))


def catalog_name(
    config: Config, record: TableRecord
) -> symlinks_dataset.SymlinksDatasetFacet | None:
    """Return OpenLineage's facet of a lake table's name in the Hive Metastore.

    The result is None if no Hive Metastore is configured.
    """
    if config.catalog is None:
        return None
    shown = record.shown_as or ".".join(config.catalog_name(record.table, record.shard) or ())
    metastore = urlsplit(config.catalog.metastore.split(",")[0])
    other = symlinks_dataset.Identifier(f"hive://{metastore.netloc}", shown, "TABLE")
    return symlinks_dataset.SymlinksDatasetFacet([other])


def source_facets(record: TableRecord | None) -> Facets:
    """Return OpenLineage's facets of a source's table, with the columns last read from the catalog.

    Args:
        record: The table's record; None if there is no record any more.
    """
    facets: Facets = {"datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("TABLE")}
    looked = None if record is None or record.attempt is None else record.attempt.fingerprint
    if looked is not None:
        columns = Catalog.read(looked.facts).columns
        facets["schema"] = _schema_facet(
            [(column.name, column.type) for column in columns.values()]
        )
    return facets


def topic_facets() -> Facets:
    """Return OpenLineage's facets of a topic."""
    return {"datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("TOPIC")}


def lake_facets(
    config: Config, record: TableRecord | None, columns: Sequence[LakeField], source: Name | None
) -> Facets:
    """Return OpenLineage's facets of a lake table.

    Args:
        config: The configuration.
        record: The table's record; None if there is no record any more.
        columns: The lake's columns at the time of the event; empty if they are not known.
        source: The name of the source's table; None if it is not known.
    """
    facets: Facets = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("TABLE"),
        "storage": storage_dataset.StorageDatasetFacet("hudi", "parquet"),
    }
    if record is not None and (other := catalog_name(config, record)) is not None:
        facets["symlinks"] = other
    if columns:
        own = [(column.name, column.lake) for column in columns]
        facets["schema"] = _schema_facet([*META_COLUMNS, *own])
        if source is not None:
            facets["columnLineage"] = _column_lineage(columns, source)
    return facets


def _schema_facet(columns: Sequence[tuple[str, str]]) -> schema_dataset.SchemaDatasetFacet:
    """Return OpenLineage's facet of a table's columns."""
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name, kind, ordinal_position=number)
        for number, (name, kind) in enumerate(columns, start=1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields)


def _column_lineage(
    columns: Sequence[LakeField], source: Name
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """Return each lake column's source column, and whether the lake column hides the values.

    A lake column whose source column was dropped is left out.
    """
    fields = {}
    for column in columns:
        if column.source == DROPPED:
            continue
        change = column_lineage_dataset.Transformation(
            "DIRECT",
            "TRANSFORMATION" if column.hide else "IDENTITY",
            description=column.hide or None,
            masking=bool(column.hide),
        )
        origin = column_lineage_dataset.InputField(
            source.namespace, source.name, column.name, [change]
        )
        fields[column.name] = column_lineage_dataset.Fields([origin])
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields)
