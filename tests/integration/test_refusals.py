"""The remedies for refused tables work: the tests run the statements exactly as printed."""

from __future__ import annotations

from cdc.config import TableSettings
from operate.readiness import judge
from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import open_source, table_id
from tests.integration.rigs.table_shapes import (
    APPEND,
    BY_ID,
    KEYED,
    KEYLESS,
    NO_SETTINGS,
    PARTED,
    PLAIN,
    UNCLEAR,
    UNIQUE,
    A,
    Refused,
    Shape,
    fits_after_its_remedy,
)

BY_V = ("CREATE UNIQUE INDEX T_v ON T (v)", f"{A} REPLICA IDENTITY USING INDEX T_v")
NOTHING = (KEYED, f"{A} REPLICA IDENTITY NOTHING")
OTHER_KEY = TableSettings(key_columns=("v",))
WITHOUT_V = TableSettings.model_validate({"mode": "append", "columns": {"exclude": ["v"]}})


CASES = [
    Refused(
        Shape("keyed", (PLAIN,)), r"1\. .*?(ALTER .*? ADD PRIMARY KEY \(\.\.\.\))", {"...": "id"}
    ),
    Refused(
        Shape("indexed", (PLAIN, UNIQUE)),
        r"2\. .*?(ALTER .*? USING INDEX <[^>]*>), and key_columns: \[id\]",
        {"<name of that index>": "T_i"},
        settings=BY_ID,
    ),
    Refused(
        Shape("index_added", (PLAIN,)),
        r"2\. add a unique index .*?(ALTER .*? USING INDEX <[^>]*>), and key_columns",
        {"<index>": "T_i"},
        (UNIQUE,),
        BY_ID,
    ),
    Refused(
        Shape("whole", (PLAIN, UNIQUE)), r"3\. .*?(ALTER .*? FULL) and key_columns", settings=BY_ID
    ),
    Refused(Shape("a_log", (PLAIN,)), r"4\. .*?mode: append", settings=APPEND),
    Refused(
        Shape("unindexed", (PLAIN, f"{A} REPLICA IDENTITY FULL"), settings=BY_ID),
        r"(CREATE UNIQUE INDEX .*?\))",
        settings=BY_ID,
    ),
    Refused(Shape("by_key", NOTHING), r"(ALTER .*? DEFAULT)"),
    Refused(
        Shape("by_index", NOTHING),
        r"(ALTER .*?) DEFAULT .*? or (USING INDEX <unique index>)",
        {"<unique index>": "T_pkey"},
    ),
    Refused(Shape("by_row", NOTHING), r"(ALTER .*?) DEFAULT .*? or (FULL)"),
    Refused(Shape("nothing_log", NOTHING), "mode: append", settings=APPEND),
    Refused(
        Shape("unlogged", (KEYED.replace("TABLE", "UNLOGGED TABLE"),)),
        r"(ALTER .*? SET LOGGED)",
        {"...": "T"},
    ),
    Refused(Shape("another", (KEYED, *BY_V)), r"(ALTER .*? DEFAULT)"),
    Refused(Shape("other_key", (KEYED, *BY_V)), r"key_columns: \[v\]", settings=OTHER_KEY),
    Refused(
        Shape("other_row", (KEYED, BY_V[0]), settings=OTHER_KEY),
        r"(ALTER .*? FULL)",
        settings=OTHER_KEY,
    ),
    Refused(
        Shape("index_gone", (KEYED, *BY_V, "DROP INDEX T_v")),
        r"Run (ALTER .*? DEFAULT)\.$",
    ),
    Refused(
        Shape("deferred", ("CREATE TABLE T (id int PRIMARY KEY DEFERRABLE, v int NOT NULL)",)),
        r"(ALTER .*? USING INDEX <index>), and key_columns",
        {"<index>": "T_v"},
        BY_V[:1],
        OTHER_KEY,
    ),
    Refused(
        Shape("part_unlogged", (*PARTED, "CREATE UNLOGGED TABLE T_2 PARTITION OF T DEFAULT")),
        r"(ALTER .*? SET LOGGED)",
    ),
    Refused(
        Shape("part_nothing", (*PARTED, f"{A}_1 REPLICA IDENTITY NOTHING")), r"(ALTER .*? DEFAULT)"
    ),
    Refused(
        Shape("parts", (f"{PLAIN} PARTITION BY RANGE (id)", UNIQUE), settings=BY_ID),
        r"(ALTER .*? ADD PRIMARY KEY \(\.\.\.\))",
        {"...": "id"},
    ),
    Refused(
        Shape("parts_log", (f"{PLAIN} PARTITION BY RANGE (id)", UNIQUE), settings=BY_ID),
        "mode: append",
        settings=APPEND,
    ),
    Refused(
        Shape(
            "part_foreign",
            (
                KEYLESS[0],
                KEYLESS[2],
                "CREATE FOREIGN TABLE T_2 PARTITION OF T DEFAULT SERVER nowhere",
            ),
            settings=APPEND,
        ),
        r"^Detach it: (ALTER .*)\.$",
        settings=APPEND,
    ),
    Refused(
        Shape("never_null", UNCLEAR, settings=APPEND),
        r"1\. (ALTER .*? SET NOT NULL)",
        {"...": "v"},
        settings=APPEND,
    ),
    Refused(
        Shape("no_default", UNCLEAR, settings=APPEND),
        r"1\. (ALTER .*?) SET NOT NULL, or (DROP DEFAULT)",
        {"...": "v"},
        settings=APPEND,
    ),
    Refused(
        Shape("left_out", UNCLEAR, settings=APPEND),
        r"3\. columns: \{exclude: \[\.\.\.\]\}",
        settings=WITHOUT_V,
    ),
]


def test_refused_tables_fit_after_what_they_are_told(database: Database) -> None:
    database.stack.psql(
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;"
        f"GRANT USAGE ON FOREIGN SERVER nowhere TO {ADMIN}",
        database=database.name,
    )
    for case in CASES:
        fits_after_its_remedy(open_source(database), database, case)


INSTEAD = [
    (Shape("part", PARTED), "T_1", "Onboard the root: `tributary onboard {}:public.part`", "T"),
    (
        Shape("parent", (KEYED, "CREATE TABLE T_of (PRIMARY KEY (id)) INHERITS (T)")),
        "T",
        "Onboard those tables by themselves, and leave this one out",
        "T_of",
    ),
]
"""For each case: the tables, the refused table, the printed remedy, and the table to onboard."""


def test_a_table_fits_that_is_to_be_onboarded_instead_of_another(database: Database) -> None:
    source = open_source(database)
    for shape, refused, told, instead in INSTEAD:
        database.execute(*shape.sql(shape.create))
        (refused, instead) = shape.sql((refused, instead))
        verdict = judge(source.table(table_id(database, refused)), NO_SETTINGS)
        assert verdict.remedy.startswith(told.format(database.name)), (refused, verdict)
        assert judge(source.table(table_id(database, instead)), NO_SETTINGS).ok, instead
