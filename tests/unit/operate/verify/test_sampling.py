"""A sampled row belongs to the key in the lake, in any form that the source's driver returns."""

from __future__ import annotations

import math
import struct
from typing import Any, cast

import pytest

from cdc.sources.postgres.lookup import lake_value
from operate.verify.compare import _python_key_value
from operate.verify.sampling import Sampler
from schemas.table import Column, TableId, TableSchema
from schemas.type_rule import TypeRule


@pytest.mark.parametrize(
    ("kind", "in_lake", "shown"),
    [
        ("float", struct.unpack("f", struct.pack("f", 0.1))[0], 0.1),
        ("float", float("nan"), float("nan")),
        ("double", float("nan"), float("nan")),
        ("float", math.inf, math.inf),
    ],
)
def test_a_row_that_the_source_has_is_never_absent(kind: str, in_lake: float, shown: float) -> None:
    """Else `verify` would take a row that the lake has lost for one that the source has deleted."""

    class Source:
        def fetch_by_key(self, *_: object) -> list[dict[str, Any]]:
            return [{"k": lake_value(TypeRule(kind, "{0}", kind, "{0}"), shown)}]

    schema = TableSchema(TableId("shop", "public", "t"), (Column("k", kind, kind, False),), ("k",))
    key = (_python_key_value(in_lake, kind),)
    with Sampler(cast("Any", Source()), cast("Any", None), schema, [key]) as sampler:
        pass
    assert sampler.samples >= 2
    assert sampler.absent == frozenset()
