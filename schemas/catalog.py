"""The description of one table in its source's catalog, parsed from a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from schemas.errors import SchemaError

SourceKind = Literal["postgres", "mysql", "mariadb"]
"""The kinds of servers on which source tables are."""
SOURCE_KINDS: tuple[SourceKind, ...] = get_args(SourceKind)

_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}
_FILE = "relfilenode"
_STORAGE = ("table_id", "altered")
"""Facts of MySQL and MariaDB; if nothing but these two facts changes, no events are lost.

``table_id`` names the storage of the rows, and ``altered`` changes with the table's definition. If
these facts change although the binlog has no DDL statement on the table, the cause is either
maintenance, which changes no row, or a TRUNCATE, which arrives as an event.
"""
_XIDS = 1 << 32
LABEL = "label "
"""The prefix of each key in ``CatalogColumn.parts`` whose value is a label of an enum."""

ColumnKey = int | str
"""Identifies a column in its table's catalog: PostgreSQL's number of the column, or the name of a
column of MySQL or MariaDB."""


@dataclass(frozen=True)
class CatalogColumn:
    """The description of one column in a source's catalog.

    Args:
        number: The column's number in the table; None if the server does not number columns.
        name: The column's name.
        type: The column's type as the server prints it.
        nullable: Whether the column allows NULL. If the column's type is a domain, true only if the
            domain allows NULL, too.
        default: The column's default, or the expression of a generated column, as the server prints
            it; None if the column has neither.
        generated: Whether the column is generated.
        written: For PostgreSQL, the id of the transaction that last wrote the column's row in the
            catalog. For MySQL and MariaDB, the column's type, character set and collation.
        parts: The parts of the column's type: the labels of an enum or the fields of a composite.
        parts_written: For each label, the id of the transaction that last wrote the label.
        granted: Privileges on the column; None if no privilege was ever granted.
        options: The parts of the column's definition that no other attribute here has.
        default_made: Id of the default, unique among the table's present and former defaults; None
            if the column has no default.
        stored: Whether the catalog stores the column's value for rows that are older than the
            column. A rewrite of the table moves this value into the rows.
        domain: If the column's type is a domain, the domain's definition, without its NOT NULL.
        domain_written: The id of the transaction that last wrote the domain's definition.
        as_added: Whether the catalog proves that no statement made the column NOT NULL after the
            column was added. A later change of the table can remove this proof.
        numbered: Whether the server fills the column with a number for each new row
            (AUTO_INCREMENT); None if the catalog does not say.
    """

    number: int | None
    name: str
    type: str
    nullable: bool
    default: str | None
    generated: bool
    written: str
    parts: Mapping[str, str] = field(default_factory=dict)
    parts_written: Mapping[str, str] = field(default_factory=dict)
    granted: str | None = None
    options: str = ""
    default_made: Any = field(default=None, compare=False)
    stored: bool = False
    domain: Mapping[str, Any] = field(default_factory=dict)
    domain_written: str = ""
    as_added: bool = field(default=False, compare=False)
    numbered: bool | None = field(default=None, compare=False)

    def written_again(self, since: CatalogColumn) -> bool:
        """Whether a statement wrote the column's catalog row without changing the definition.

        The result is False if privileges were ever granted on the column, since GRANT also writes
        the column's catalog row.

        Args:
            since: The column at the earlier read of the catalog.
        """
        return self.written != since.written and self.is_as(since) and self.granted is None

    def moved_only(self, since: CatalogColumn) -> bool:
        """Whether a rewrite moved the column's stored value from the catalog into the rows.

        The result is False if the column's default has changed since the earlier read of the
        catalog.

        Args:
            since: The column at the earlier read of the catalog.
        """
        kept = self.default_made is not None and self.default_made == since.default_made
        return kept and since.stored and not self.stored

    def is_as(self, since: CatalogColumn) -> bool:
        """Whether the column equals ``since`` if ``written`` and ``domain_written`` are ignored.

        Args:
            since: The column at the earlier read of the catalog.
        """
        return replace(since, written=self.written, domain_written=self.domain_written) == self


@dataclass(frozen=True)
class IdentityIndex:
    """An index that PostgreSQL accepts as a replica identity in place of the primary key.

    Args:
        written: The id of the transaction that last wrote the index's row in the catalog.
        flags: The flags of the index in the catalog, such as ``indisvalid``, joined by spaces.
        chosen: Whether the transaction ``written`` could have made the index the replica identity:
            this transaction also wrote the table's row in the catalog, and did not create the
            index.
    """

    written: str
    flags: str
    chosen: bool

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> IdentityIndex:
        """Parse an index from a fingerprint's JSON object."""
        taken = _Facts(facts)
        return cls(taken.take("written"), taken.take("flags"), taken.take("chosen"))


@dataclass(frozen=True)
class Partition:
    """The description of one partition in the catalog, without the file of its rows.

    Args:
        number: The partition's number in the catalog, which a rename does not change.
        kind: The kind of relation in PostgreSQL's catalog, for example ``r`` for a plain table.
        persistence: The persistence in PostgreSQL's catalog, for example ``p`` if the WAL contains
            the changes.
        replica_identity: ``default``, ``full``, ``index`` or ``nothing``.
        identity_key: Columns of the index that is the replica identity; None without such an index.
        attached: The ids of the transactions that attached the partition to its parent, this parent
            to its own parent, and so on.
        indexes: By object id, the indexes that PostgreSQL accepts as the partition's replica
            identity in place of the primary key.
        access_method: The table access method if it writes no row changes to the WAL; else empty.
    """

    number: int
    kind: str
    persistence: str
    replica_identity: str
    identity_key: tuple[str, ...] | None
    attached: str
    indexes: Mapping[str, IdentityIndex]
    access_method: str = ""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Partition:
        """Parse a partition from a fingerprint's JSON object."""
        taken = _Facts(facts)
        key = taken.take("identity")
        return cls(
            number=taken.take("oid"),
            kind=taken.take("kind"),
            persistence=taken.take("persistence"),
            replica_identity=_IDENTITIES[taken.take("replica_identity")],
            identity_key=None if key is None else tuple(key),
            attached=taken.take("attached"),
            indexes=_identity_indexes(taken.take("indexes")),
            access_method=taken.take("access_method", ""),
        )

    @property
    def compared(self) -> dict[str, Any]:
        """The partition's attributes whose changes lose events, by their names in a fingerprint."""
        return {
            "oid": self.number,
            "kind": self.kind,
            "persistence": self.persistence,
            "replica_identity": self.replica_identity,
            "identity": None if self.identity_key is None else list(self.identity_key),
        } | ({"access_method": self.access_method} if self.access_method else {})


@dataclass(frozen=True)
class PublicationState:
    """The description of a table's publication in the catalog.

    Args:
        owner: Object id of the role that owns the publication.
        written: The id of the transaction that last wrote the publication's row in the catalog.
        settings: The other values of the publication's row in the catalog.
    """

    owner: str
    written: str
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> PublicationState:
        """Parse a publication from a fingerprint's JSON object."""
        taken = _Facts(facts)
        return cls(taken.take("pubowner"), taken.take("written"), taken.rest)


@dataclass(frozen=True)
class Catalog:
    """The description of one table in its source's catalog.

    Args:
        columns: The columns by key. On PostgreSQL, no later column of the table gets the number of
            a dropped column. On MySQL and MariaDB, a rename gives the column another key, and a new
            column with the name of a dropped column gets the dropped column's key.
        source_kind: The kind of the table's server.
        primary_key: Columns of the primary key.
        rest: The other entries of the fingerprint. If one of these entries changes, events can be
            lost.
        attributes: The highest number that any column has had; None if the server does not number
            columns.
        key_made: Id of the primary key, unique among the table's present and former primary keys.
        identity_key: Columns of the index that is the replica identity; empty without such an
            index.
        replica_identity: ``default``, ``full``, ``index`` or ``nothing``. None for MySQL and
            MariaDB, whose binlog has whole rows.
        files: PostgreSQL: by partition name, the file of the partition's rows. The table's own file
            is under the empty name.
        partitions: PostgreSQL: the table's partitions by name.
        owner: PostgreSQL: the owning role.
        named: PostgreSQL: the id of the transaction that last changed the table's name, schema or
            owner.
        indexes: By object id, the indexes that PostgreSQL accepts as a replica identity in place of
            the primary key.
        row_written: The id of the transaction that last wrote the table's row in the catalog; empty
            if the catalog has no such id.
        children: By name, the tables that inherit from the table and are not its partitions, each
            with the id of the transaction that began the inheritance.
        publication: The publication of the table's capture; None if there is no such publication,
            or if the server is MySQL or MariaDB.
        number: The table's object id; None if the server does not number tables.
        sent_generated: Generated columns that the publication adds to events (PostgreSQL 18).
        read_at: A position in the source's log; empty for PostgreSQL. The catalog, as read, shows
            the effects of every statement at lower positions.
        horizon: A transaction id of PostgreSQL: every transaction with a smaller id had ended when
            the catalog was read. Empty for MySQL and MariaDB.
    """

    columns: Mapping[ColumnKey, CatalogColumn]
    source_kind: SourceKind
    primary_key: tuple[str, ...]
    rest: Mapping[str, Any]
    attributes: int | None = None
    key_made: Any = None
    identity_key: tuple[str, ...] = ()
    replica_identity: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    owner: str = ""
    named: str = ""
    indexes: Mapping[str, IdentityIndex] = field(default_factory=dict)
    row_written: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    publication: PublicationState | None = None
    number: int | None = None
    sent_generated: tuple[str, ...] = ()
    read_at: str = ""
    horizon: str = ""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Catalog:
        """Parse the catalog's description of a table from the JSON object of a fingerprint.

        Raises:
            SchemaError: The JSON object lacks a key that every fingerprint of this kind of source
                has.
        """
        taken = _Facts(json.loads(json.dumps(facts)))
        kind: SourceKind = taken.take("source_kind")
        return _of_postgres(taken) if kind == "postgres" else _of_mysql(taken, kind)

    def column_pairs(
        self, since: Catalog
    ) -> Iterator[tuple[CatalogColumn | None, CatalogColumn | None]]:
        """Yield the former and the current description of each column of either catalog.

        A description is None if its catalog lacks the column. The order is that of the columns'
        numbers, or of their names if they have no numbers.

        Args:
            since: The table at the earlier read of the catalog.
        """
        columns = {**since.columns, **self.columns}
        for key in sorted(columns, key=lambda one: (columns[one].number or 0, columns[one].name)):
            yield since.columns.get(key), self.columns.get(key)

    def kept_columns(self, since: Catalog) -> Iterator[tuple[CatalogColumn, CatalogColumn]]:
        """Yield each column that the table had and still has, as it was and as it is.

        Args:
            since: The table at the earlier read of the catalog.
        """
        for old, new in self.column_pairs(since):
            if old is not None and new is not None:
                yield old, new

    def added_and_dropped(self, since: Catalog) -> bool:
        """Whether a column was added since an earlier read of the catalog, and dropped again.

        False for MySQL and MariaDB, whose catalogs do not show this.

        Args:
            since: The table at the earlier read of the catalog.
        """
        if since.attributes is None or self.attributes is None:
            return False
        later = range(since.attributes + 1, self.attributes + 1)
        return any(number not in self.columns for number in later)


_REQUIRED = object()


class _Facts:
    """The JSON object of a fingerprint, from which a caller takes each key at most once.

    ``rest`` has the keys that were not taken yet.

    Args:
        facts: The JSON object.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.rest = dict(facts)

    def take(self, name: str, default: Any = _REQUIRED) -> Any:
        """Remove a key, and return its value.

        Raises:
            SchemaError: The key is missing, and no default is given.
        """
        value = self.rest.pop(name, default)
        if value is _REQUIRED:
            raise SchemaError(
                f"the recorded catalog of a table has no fact {name!r}",
                remedy="The state store was altered: copy the table again with `tributary"
                " bootstrap`.",
                field=name,
            )
        return value


def _of_postgres(taken: _Facts) -> Catalog:
    """Parse a table of PostgreSQL from its fingerprint; ``source_kind`` has been taken already."""
    columns: dict[ColumnKey, CatalogColumn] = {
        int(number): _catalog_column(int(number), one)
        for number, one in taken.take("columns").items()
    }
    keys = {
        which: tuple(columns[int(n)].name if int(n) in columns else n for n in numbers.split())
        for which, numbers in taken.take("keys").items()
    }
    leaves = {name: _Facts(leaf) for name, leaf in taken.take("leaves").items()}
    files = {"": taken.take(_FILE)} | {name: leaf.take(_FILE) for name, leaf in leaves.items()}
    publication = taken.take("publication", None)
    return Catalog(
        columns=columns,
        source_kind="postgres",
        primary_key=keys.get("primary", ()),
        attributes=int(taken.take("attributes")),
        key_made=taken.take("key_made", None),
        identity_key=keys.get("identity", ()),
        replica_identity=_IDENTITIES[taken.take("replica_identity")],
        files=files,
        partitions={name: Partition.read(leaf.rest) for name, leaf in leaves.items()},
        owner=taken.take("owner"),
        named=taken.take("named"),
        indexes=_identity_indexes(taken.take("indexes", {})),
        row_written=taken.take("row_written", ""),
        children=taken.take("children", {}),
        publication=PublicationState.read(publication) if publication else None,
        number=taken.rest.get("oid"),
        sent_generated=tuple(taken.take("sent_generated", ())),
        horizon=taken.take("snapshot", "").partition(":")[0],
        rest=taken.rest,
    )


def _of_mysql(taken: _Facts, kind: SourceKind) -> Catalog:
    """Parse a table of MySQL or MariaDB from its fingerprint; the kind has been taken already."""
    for fact in _STORAGE:
        taken.take(fact, None)
    return Catalog(
        columns={
            name: _catalog_column(None, {"name": name, **one})
            for name, one in taken.take("columns").items()
        },
        source_kind=kind,
        primary_key=tuple(taken.take("primary_key")),
        read_at=taken.take("read_at", ""),
        rest=taken.rest,
    )


def _identity_indexes(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, IdentityIndex]:
    """Return the indexes that a fingerprint's facts describe; the key is the index's number."""
    return {number: IdentityIndex.read(one) for number, one in facts.items()}


def _catalog_column(number: int | None, facts: Mapping[str, Any]) -> CatalogColumn:
    """Return the column that ``facts``, a JSON object in a fingerprint, describes."""
    taken = _Facts(facts)
    domain = dict(taken.take("domain", None) or {})
    refuses_null, domain_written = domain.pop("typnotnull", False), domain.pop("xmin", "")
    return CatalogColumn(
        number=number,
        name=taken.take("name"),
        type=taken.take("shown"),
        nullable=taken.take("nullable") and not refuses_null,
        default=taken.take("default"),
        generated=taken.take("generated"),
        written=taken.take("written"),
        parts=taken.take("parts", None) or {},
        parts_written=taken.take("parts_written", None) or {},
        granted=taken.take("granted", None),
        options=taken.take("options", ""),
        default_made=taken.take("default_made", None),
        stored=taken.take("stored", False),
        domain_written=domain_written,
        domain=domain,
        as_added=taken.take("as_added", False),
        numbered=taken.take("numbered", None),
    )


def not_before(xid: str, other: str) -> bool:
    """Whether the transaction ``xid`` of a PostgreSQL catalog is ``other`` or is younger than it.

    Ids have 32 bits and start again after the largest one. So half of all ids count as younger than
    a given id. Ids below 3 are never assigned, and are older than every other id.
    """
    return int(xid) >= 3 and (int(xid) - int(other or 0)) % _XIDS < _XIDS // 2


def differences(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the differences between two JSON values of fingerprints, one line each.

    Args:
        path: Path of the values in the fingerprint, for example ``columns.3.type``; empty for whole
            fingerprints.
        old: The former value.
        new: The current value.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"{inner} is gone (was {json.dumps(old[key])})"
            elif key not in old:
                yield f"{inner} is new ({json.dumps(new[key])})"
            else:
                yield from differences(inner, old[key], new[key])
    elif old != new:
        yield f"{path} was {json.dumps(old)}, is {json.dumps(new)}"
