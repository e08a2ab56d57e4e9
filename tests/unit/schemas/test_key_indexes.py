"""Indexes that were dropped between two looks, and that may have kept the key unique."""

from __future__ import annotations

import pytest

from schemas.catalog import Catalog
from schemas.changes import Verdict
from schemas.ddl.mysql_statements import read_statements
from schemas.evolution import Evidence, LakeColumns, Rules, diff
from schemas.table import Column
from tests.unit.schemas.catalogs import column

DROPPED = ("ALTER TABLE t DROP INDEX u", "ALTER TABLE t ADD UNIQUE INDEX u (code)")
REPLACED = ("ALTER TABLE t DROP INDEX u, ADD UNIQUE INDEX v (Code)",)
NARROWED = ("ALTER TABLE t DROP INDEX u, ADD UNIQUE INDEX v (code, id)",)


@pytest.mark.parametrize(
    ("statements", "key", "named"),
    [
        (DROPPED, ("code",), DROPPED[:1]),
        (DROPPED, ("id", "code"), ()),  # the primary key keeps it unique
        (DROPPED, ("id",), ()),
        (DROPPED, (), ()),  # rows of an append table are not found by a key
        (REPLACED, ("code",), ()),
        (NARROWED, ("code",), NARROWED),
    ],
)
def test_a_key_that_may_have_had_several_rows_needs_a_copy(
    statements: tuple[str, ...], key: tuple[str, ...], named: tuple[str, ...]
) -> None:
    columns = {"id": column("id", "int", nullable=False), "code": column("code", nullable=False)}
    facts = {"source_kind": "mysql", "columns": columns, "primary_key": ["id"]}
    catalog = Catalog.read(facts)
    found = diff(
        catalog,
        catalog,
        LakeColumns({"id": "int", "code": "string"}),
        Rules(
            [Column("id", "int", "int"), Column("code", "text", "string")],
            keyed=bool(key),
            key=key,
        ),
        Evidence(statements=read_statements(statements)),
    )
    assert [(one.what, one.verdict) for one in found] == [
        (statement, Verdict.BOOTSTRAP) for statement in named
    ]
