"""The type map of PostgreSQL: one rule per type, for the snapshot and for the stream alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TypeKind = Literal["b", "e", "d", "c", "r", "m", "p"]


@dataclass(frozen=True)
class PostgresType:
    """A column's type, taken apart.

    Args:
        name: Name in ``pg_type``, without a schema: ``int4``, ``varchar``, ``numeric``.
        typmod: ``atttypmod``; -1 without a modifier.
        kind: ``typtype``: base, enum, domain, composite, range, multirange, pseudo.
        element: The element's type of an array.
        base: The type under a domain, with the domain's modifier.
        display: As ``format_type`` prints it, for example ``numeric(10,2)``.
    """

    name: str
    typmod: int = -1
    kind: TypeKind = "b"
    element: PostgresType | None = None
    base: PostgresType | None = None
    display: str = ""
