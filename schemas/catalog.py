"""The catalog of a source for one table, read from the facts of its fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

SourceKind = Literal["postgres", "mysql", "mariadb"]
"""The kinds of servers that tables are on."""

_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}
_FILE = "relfilenode"
_STORED = ("table_id", "altered")
_XIDS = 1 << 32
LABEL = "label "
"""The prefix of the name of a part that is a label of an enum."""


@dataclass(frozen=True)
class CatalogColumn:
    """One column.

    Args:
        number: The column's number in the table.
        name: The column's name.
        type: The column's type as the server prints it.
        nullable: Whether the column and the domain that is its type allow NULL.
        default: The column's default, or the expression of a generated column, as the server prints
            it.
        generated: Whether the column is generated.
        written: Identifies the last write of the column's definition.
        parts: The parts of the column's type: labels of enums and fields of composites.
        parts_written: Identifies the last write of each label.
        granted: Privileges on the column; None if none was ever granted.
        options: The rest of the column's definition.
        default_made: Identifies the default among all defaults that the table's columns have had;
            None if the column has no default.
        stored: Whether the catalog stores the column's value in older rows. A rewrite of the table
            ends this.
        domain: If the column's type is a domain, the rest of the domain's definition.
        domain_written: Identifies the last write of the domain's definition.
        as_added: Whether nothing shows that the column became NOT NULL after it was added. Later
            changes of the table may change this fact.
    """

    number: int
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

    def written_again(self, since: CatalogColumn) -> bool:
        """Whether the definition was written but not changed, and no GRANT can be the cause.

        Args:
            since: The column as it was.
        """
        return self.written != since.written and self.is_as(since) and self.granted is None

    def moved_only(self, since: CatalogColumn) -> bool:
        """Whether a rewrite of the table removed the stored value, with the same default as before.

        Args:
            since: The column as it was.
        """
        kept = self.default_made is not None and self.default_made == since.default_made
        return kept and since.stored and not self.stored

    def is_as(self, since: CatalogColumn) -> bool:
        """Whether the column has the same facts as before, apart from the times of writes.

        Args:
            since: The column as it was.
        """
        return replace(since, written=self.written, domain_written=self.domain_written) == self


@dataclass(frozen=True)
class Catalog:
    """One table.

    Args:
        columns: The columns by number. A number is never used for another column.
        source_kind: The kind of the table's server. Only PostgreSQL numbers columns. For other
            kinds the number is derived from the column's name, so a renamed column has another
            number.
        attributes: The highest number that any column has had.
        primary_key: Columns of the primary key.
        key_made: Identifies the primary key among all primary keys that the table has had.
        identity_key: Columns of the index that is the replica identity; empty if no index is.
        replica_identity: ``default``, ``full``, ``index`` or ``nothing``; None if the server has no
            such setting, since its log has whole rows.
        files: By partition name, the file of the partition's rows. A plain table has one file.
        leaves: The table's partitions by name, without their files.
        owner: The owning role.
        named: Identifies the last change of the table's name, schema or owner.
        indexes: By object id, the indexes that could identify a row in the log without the primary
            key. Each has a text that identifies its last write, and whether this write made the
            index the replica identity.
        row_written: Identifies the last write of the table's row in the catalog; empty if the
            server does not show it.
        children: Tables that inherit from the table and are not its partitions. Each has a text
            that identifies the start of the inheritance.
        publication: The settings of the table's publication in the catalog, and the publication's
            last write.
        rest: Facts whose change always loses events.
        stored: Storage of the rows and its time of creation, for a server whose log has each DDL
            statement. If the storage changes without a statement, the cause is upkeep, which
            changes no row, or a TRUNCATE, which is an event.
        read_at: A position of the log. The catalog shows every statement before this position.
        horizon: A transaction id. Every transaction below it had ended when the catalog was read.
    """

    columns: Mapping[int, CatalogColumn]
    attributes: int
    primary_key: tuple[str, ...]
    identity_key: tuple[str, ...]
    replica_identity: str | None
    files: Mapping[str, Any]
    leaves: Mapping[str, Mapping[str, Any]]
    owner: str
    named: str
    source_kind: SourceKind
    rest: Mapping[str, Any]
    key_made: Any = None
    indexes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    row_written: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    publication: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    read_at: str = ""
    horizon: str = ""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Catalog:
        """Parse the catalog from a fingerprint's facts."""
        plain = json.loads(json.dumps(facts))
        read_at, snapshot = plain.pop("read_at", ""), plain.pop("snapshot", "")
        names = {number: column["name"] for number, column in plain["columns"].items()}
        keys = {
            which: tuple(names.get(number, number) for number in numbers.split())
            for which, numbers in plain.pop("keys").items()
        }
        stored = {name: plain.pop(name) for name in _STORED if name in plain}
        columns = {
            int(number): _column(int(number), column)
            for number, column in plain.pop("columns").items()
        }
        leaves = plain.pop("leaves")
        for leaf in leaves.values():
            leaf["replica_identity"] = _IDENTITIES[leaf["replica_identity"]]
        files = {"": plain.pop(_FILE)} | {name: leaf.pop(_FILE) for name, leaf in leaves.items()}
        return cls(
            columns=columns,
            attributes=int(plain.pop("attributes")),
            primary_key=keys.get("primary", ()),
            identity_key=keys.get("identity", ()),
            replica_identity=_IDENTITIES[plain.pop("replica_identity")]
            if "replica_identity" in plain
            else None,
            files=files,
            leaves=leaves,
            owner=plain.pop("owner"),
            named=plain.pop("named"),
            source_kind=plain.pop("source_kind"),
            key_made=plain.pop("key_made", None),
            indexes=plain.pop("indexes", {}),
            row_written=plain.pop("row_written", ""),
            children=plain.pop("children", {}),
            publication=plain.pop("publication", None) or {},
            stored=stored,
            read_at=read_at,
            horizon=snapshot.partition(":")[0],
            rest=plain,
        )


def _column(number: int, facts: Mapping[str, Any]) -> CatalogColumn:
    domain = dict(facts.get("domain") or {})
    refuses_null, domain_written = domain.pop("typnotnull", False), domain.pop("xmin", "")
    return CatalogColumn(
        number=number,
        name=facts["name"],
        type=facts["shown"],
        nullable=facts["nullable"] and not refuses_null,
        default=facts["default"],
        generated=facts["generated"],
        written=facts["written"],
        parts=facts.get("parts") or {},
        parts_written=facts.get("parts_written") or {},
        granted=facts.get("granted"),
        options=facts.get("options", ""),
        default_made=facts.get("default_made"),
        stored=facts.get("stored", False),
        domain_written=domain_written,
        domain=domain,
        as_added=facts.get("as_added", False),
    )


def not_before(xid: str, other: str) -> bool:
    """Whether a transaction id of 32 bits is equal to another id or younger; ids wrap around.

    Ids below 3 are older than every other id.
    """
    return int(xid) >= 3 and (int(xid) - int(other or 0)) % _XIDS < _XIDS // 2


def differences(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the differences of two facts, one line each."""
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
