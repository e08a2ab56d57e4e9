"""Catalogs of a table as Python values, and the changes between two of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from schemas.catalog import Catalog
from schemas.changes import (
    Change,
)
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.table import Column

LAKE_TYPES = {
    "smallint": "int",
    "integer": "int",
    "bigint": "bigint",
    "text": "string",
    "numeric(10,2)": "decimal(10,2)",
    "numeric(20,2)": "decimal(20,2)",
    "numeric(20,4)": "decimal(20,4)",
}


def column(name: str, shown: str = "text", **facts: Any) -> dict[str, Any]:
    plain = {"name": name, "type": 1, "typmod": -1, "shown": shown, "nullable": True}
    more = {"granted": None, "options": "", "as_added": False, "parts_written": None}
    more |= {"domain": None, "default_made": None, "stored": False}
    return {**plain, "default": None, "generated": False, "written": "700", **more, **facts}


PUBLICATION = {"oid": 6, "pubowner": "10", "pubupdate": True, "written": "700"}
LEAF: dict[str, Any] = {
    "kind": "r",
    "persistence": "p",
    "replica_identity": "d",
    "identity": None,
    "attached": "701",
    "indexes": {},
}
FACTS: dict[str, Any] = {
    "source_kind": "postgres",
    "oid": 100,
    "relfilenode": 200,
    "kind": "p",
    "owner": "o",
    "named": "700",
    "attributes": 3,
    "persistence": "p",
    "replica_identity": "d",
    "columns": {
        "1": column("id", "integer", nullable=False),
        "2": column("note"),
        "3": column("price", "numeric(10,2)"),
    },
    "keys": {"primary": "1"},
    "key_made": 8,
    "partition_of": None,
    "leaves": {"public.o1": {**LEAF, "oid": 101, "relfilenode": 201}},
    "children": {},
    "publication": PUBLICATION,
    "publication_entry": 7,
}
LAKE = {"id": "int", "note": "string", "price": "decimal(10,2)"}


def changed(**facts: Any) -> dict[str, Any]:
    return {**deepcopy(FACTS), **facts}


def of_mysql(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a MySQL table with the same columns, and with the primary key ``id``."""
    columns = {one["name"]: one for one in facts["columns"].values()}
    return {"source_kind": "mysql", "columns": columns, "primary_key": ["id"]}


def with_columns(columns: dict[str, dict[str, Any] | None], **facts: Any) -> dict[str, Any]:
    now = changed(**facts)
    for number, one in columns.items():
        if one is None:
            del now["columns"][number]
        else:
            now["columns"][number] = one
    return now


def compared(
    now: dict[str, Any],
    *,
    before: dict[str, Any] | None = None,
    lake: dict[str, str] | None = None,
    dropped: tuple[str, ...] = (),
    stored: dict[str, tuple[str | None, ...]] | None = None,
    left_out: tuple[str, ...] = (),
    empty: tuple[int, ...] = (),
    frozen: bool = False,
    keyed: bool = True,
    key: tuple[str, ...] = ("id",),
    keeps_deleted: bool = False,
    keeps_truncated: bool = False,
    horizon: str = "",
) -> tuple[Change, ...]:
    wanted = [
        Column(one["name"], one["shown"], LAKE_TYPES.get(one["shown"], "string"))
        for one in now["columns"].values()
        if one["name"] not in left_out and not one["generated"]
    ]
    return diff(
        Catalog.read({**(before or FACTS), "snapshot": f"{horizon}:{horizon}:"}),
        Catalog.read(now),
        LakeColumns(lake or LAKE, frozenset(dropped)),
        Rules(
            wanted,
            frozen=frozen,
            keyed=keyed,
            keeps_deleted=keeps_deleted,
            keeps_truncated=keeps_truncated,
            key=key,
        ),
        Evidence(stored or {}, empty=empty),
    )


def only(*arguments: Any, **options: Any) -> Change:
    (change,) = compared(*arguments, **options)
    return change
