"""The tables of a publication, under the names that they have now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.errors import SourceError
from cdc.sources.postgres import publication_members
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


def test_a_look_at_the_publication_reads_no_ancestors_of_whole_tables(database: Database) -> None:
    names = ("a", "b", "c")
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    capture = capture_of(open_source(database), PUBLICATION)
    capture.prepare()
    capture.sent_tables.add([table_id(database, name) for name in names])
    with database.connect() as session:
        explained = f"EXPLAIN (ANALYZE) {publication_members._ADDED}".encode()
        plan = [str(line) for (line,) in session.execute(explained, (PUBLICATION,))]
    (ancestors,) = [line for line in plan if "pg_partition_ancestors" in line]
    assert "never executed" in ancestors


@pytest.mark.breadth
def test_a_locked_table_keeps_no_other_in_the_publication(
    database: Database,
) -> None:
    """VACUUM takes this lock, too."""
    database.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    a, b = table_id(database, "a"), table_id(database, "b")
    capture = capture_of(open_source(database), PUBLICATION)
    capture.prepare()
    sent = capture.sent_tables
    assert sent.add([a, b]) == [a, b]
    with database.connect() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(SourceError) as refused:
            sent.remove([a, b])
        assert refused.value.context["refused"] == a
        assert sent.tables() == [a]
    assert sent.remove([a, b]) == [a]
