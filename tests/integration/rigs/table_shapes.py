"""Kinds of tables by their statements, and refused ones with a choice of their remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdc.config import TableSettings
from cdc.sources.base import Source
from operate.readiness import judge
from tests.integration.rigs.databases import OwnDatabase

KEYED = "CREATE TABLE T (id int PRIMARY KEY, v int NOT NULL)"

PARTED = (
    f"{KEYED} PARTITION BY RANGE (id)",
    "CREATE TABLE T_1 PARTITION OF T FOR VALUES FROM (0) TO (10)",
)
KEYLESS = (
    "CREATE TABLE T (id int NOT NULL, v int) PARTITION BY RANGE (id)",
    "CREATE UNIQUE INDEX T_i ON T (id)",
    "CREATE TABLE T_1 PARTITION OF T FOR VALUES FROM (0) TO (10)",
)
ROW = ("INSERT INTO T (id, v) VALUES (1, 1)",)
CHANGES = ("UPDATE T SET v = v + 1", "DELETE FROM T")
APPEND, BY_ID = TableSettings(mode="append"), TableSettings(key_columns=("id",))


@dataclass(frozen=True)
class Shape:
    """One kind of table.

    Args:
        name: The name of the kind; the table is named after it.
        create: Statements that create the table; ``T`` stands for its name.
        refused: The expected reason of the refusal; empty if the table is accepted.
        breaks: Whether PostgreSQL refuses the application's statements after publication.
        settings: The settings of the table.
        then: Statements of the application.
    """

    name: str
    create: tuple[str, ...]
    refused: str = ""
    breaks: bool = False
    settings: TableSettings = field(default_factory=TableSettings)
    then: tuple[str, ...] = (*ROW, *CHANGES)

    def sql(self, statements: tuple[str, ...]) -> list[str]:
        return [re.sub(r"\bT(?=\b|_)", self.name, text) for text in statements]


A = "ALTER TABLE T"


PLAIN = "CREATE TABLE T (id int NOT NULL, v int)"

UNIQUE = "CREATE UNIQUE INDEX T_i ON T (id)"

UNCLEAR = ("CREATE TABLE T (id int NOT NULL, v int DEFAULT 5)",)
NO_SETTINGS = TableSettings()


@dataclass(frozen=True)
class Refused:
    """A table that is refused, and one of the choices in its remedy.

    Args:
        shape: The table, with the settings under which it is refused.
        choice: Pattern that finds the choice in the remedy; its groups together are a statement.
        filled: Values for the placeholders in the statement.
        first: Statements for what the choice demands in words; they run first.
        settings: The table's settings after the choice was followed.
    """

    shape: Shape
    choice: str
    filled: Mapping[str, str] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    settings: TableSettings = NO_SETTINGS


def fits_after_its_remedy(source: Source, database: OwnDatabase, case: Refused) -> None:
    """Create a table; assert that it is refused, and accepted after the choice was followed."""
    shape, table = case.shape, replace(database.table(case.shape.name), source=source.name)
    database.execute(*shape.sql(shape.create))
    refused = judge(source.table(table), shape.settings)
    assert not refused.ok, shape.name
    chosen = re.search(case.choice, refused.remedy)
    assert chosen, (shape.name, refused.remedy)
    statement = " ".join(chosen.groups())
    for place, value in case.filled.items():
        assert place in statement, (shape.name, statement)
        statement = statement.replace(place, *shape.sql((value,)))
    database.execute(*shape.sql(case.first), *filter(None, [statement]))
    fits = judge(source.table(table), case.settings)
    assert fits.ok, (shape.name, statement, fits)
