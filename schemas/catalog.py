"""What a source's catalog says of a table, read from the facts of its fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing", "r": "row"}
_FILE = "relfilenode"
_STORED = ("table_id", "altered")
LABEL = "label "
"""What the name of a part begins with that is a label of an enum."""


@dataclass(frozen=True)
class CatalogColumn:
    """One column.

    Args:
        number: Its number in the table.
        name: Its name.
        type: Its type as the server prints it.
        nullable: Whether it allows NULL.
        default: Its default, or the expression that generates it, as the server prints it.
        generated: Whether it is generated.
        written: Identifies when its definition was last written.
        parts: What its type is made of: labels of enums and fields of composites.
        parts_written: Identifies when labels were last written.
        granted: Privileges on it; None where none was ever granted.
        options: What else its definition says.
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


@dataclass(frozen=True)
class Catalog:
    """One table.

    Args:
        columns: By number, which is never used again.
        numbered: Whether the server numbers columns; else the number is made of the name, and a
            column with another name may be any column.
        attributes: The highest number that any column has had.
        primary_key: Its columns.
        key_made: Identifies the primary key among all that the table has had.
        identity_key: Columns of the index that is the replica identity; empty when none is.
        replica_identity: ``default``, ``full``, ``index`` or ``nothing``; ``row`` where the log
            has whole rows, whatever the table says.
        files: Where its rows lie: one file, or one per partition, by the partition's name.
        leaves: Its partitions by name, without their files.
        owner: The owning role.
        named: Identifies when the table last got its name, schema or owner.
        children: Tables that inherit from it, without partitions, and what tells since when.
        publication: The publication that it is in as the catalog has it, and when that was last
            written.
        rest: Facts whose every change loses events.
        stored: Where the rows are and since when, of a server whose log tells each statement: what
            no statement explains is upkeep that changes no row, or a TRUNCATE, which is an event.
        read_at: A position of the log before which no statement is that the catalog lacks.
        horizon: Transactions below it had ended when the catalog was read.
    """

    columns: Mapping[int, CatalogColumn]
    attributes: int
    primary_key: tuple[str, ...]
    identity_key: tuple[str, ...]
    replica_identity: str
    files: Mapping[str, Any]
    leaves: Mapping[str, Mapping[str, Any]]
    owner: str
    named: str
    rest: Mapping[str, Any]
    numbered: bool = True
    key_made: Any = None
    children: Mapping[str, str] = field(default_factory=dict)
    publication: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] = field(default_factory=dict)
    read_at: str = ""
    horizon: str = ""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Catalog:
        """The catalog in the facts of a fingerprint, whether they were stored meanwhile or not."""
        plain = json.loads(json.dumps(facts))
        read_at, horizon = plain.pop("read_at", ""), plain.pop("horizon", "")
        names = {number: column["name"] for number, column in plain["columns"].items()}
        keys = {
            which: tuple(names.get(number, number) for number in numbers.split())
            for which, numbers in plain.pop("keys").items()
        }
        stored = {name: plain.pop(name) for name in _STORED if name in plain}
        columns = {
            int(number): CatalogColumn(
                number=int(number),
                name=column["name"],
                type=column["shown"],
                nullable=column["nullable"],
                default=column["default"],
                generated=column["generated"],
                written=column["written"],
                parts=column.get("parts") or {},
                parts_written=column.get("parts_written") or {},
                granted=column.get("granted"),
                options=column.get("options", ""),
            )
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
            replica_identity=_IDENTITIES[plain.pop("replica_identity")],
            files=files,
            leaves=leaves,
            owner=plain.pop("owner"),
            named=plain.pop("named"),
            numbered=plain.pop("numbered", True),
            key_made=plain.pop("key_made", None),
            children=plain.pop("children", {}),
            publication=plain.pop("publication", None) or {},
            stored=stored,
            read_at=read_at,
            horizon=horizon,
            rest=plain,
        )


def differences(path: str, old: Any, new: Any) -> Iterator[str]:
    """What differs between two facts, one line each."""
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
