"""The tables of a publication, under the names that they have now."""

from __future__ import annotations

from dataclasses import replace

from stack.roles import ADMIN
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.sources import capture_of, open_source, table_id

PUBLICATION = "pub_test"


def test_a_table_is_found_in_the_publication_whatever_its_name_is(
    database: Database,
) -> None:
    """The publication's owner finds and removes a renamed table without any right on the table."""
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("a", "b", "c")))
    a, b, c = (table_id(database, name) for name in ("a", "b", "c"))
    capture = capture_of(open_source(database), PUBLICATION)
    capture.prepare()
    sent = capture.sent_tables
    assert sent.add([a, b, c]) == [a, b, c]
    known = [*capture.fingerprints([a, b, c]).values()]
    assert sent.added().keys() == {a, b, c}
    assert sent.remove_renamed(known, keep={a, b, c}) == []

    database.execute(
        "CREATE SCHEMA archive",
        'ALTER TABLE a RENAME TO "old a"',
        "ALTER TABLE b SET SCHEMA archive",
        "ALTER TABLE c RENAME TO b",
        "CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    )
    old, archived = table_id(database, "old a"), replace(b, schema="archive")
    assert sent.added().keys() == {old, archived, b}
    assert sent.added()[old].removal.endswith('DROP TABLE ONLY "public"."old a";')
    database.stack.psql('ALTER TABLE "old a" OWNER TO CURRENT_USER', database=database.name)
    assert sent.remove_renamed(known, keep={b}) in ([old, archived], [archived, old])
    assert sent.added().keys() == {b}, "its name is that of another table"

    database.stack.psql(f'ALTER TABLE "old a" OWNER TO {ADMIN}', database=database.name)
    assert sent.add([old, a]) == [old, a]
    database.execute('ALTER TABLE a ATTACH PARTITION "old a" DEFAULT')
    assert sent.added().keys() == {a, b}, "a partition is published as its root"
    assert sent.remove_renamed(known, keep={a, b}) == [old]
    assert sent.tables() == [a, b]
