"""Finds the tables of a publication whose names have changed since Tributary added the tables.

A publication identifies its tables by their object ids. So a table that is renamed, or moved to
another schema, stays in the publication under its new name. A search by the old name does not find
the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.publication import removing
from cdc.sources.sent_table import SentTable
from schemas.fingerprint import Fingerprint
from schemas.table import TableId

# A partition of another member is published as that one, whether or not it is a member itself. Few
# members are partitions, so the ancestors of the others are not read: each gather asks for all.
_ADDED = """
SELECT c.oid::int8, n.nspname::text, c.relname::text,
       CASE WHEN c.relispartition
            THEN EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) up (oid)
                         JOIN pg_catalog.pg_publication_rel of_root
                           ON of_root.prrelid = up.oid AND of_root.prpubid = p.oid
                         WHERE up.oid <> c.oid)
            ELSE false END
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND n.nspname <> 'tributary'
"""


@dataclass(frozen=True)
class _Member:
    """A table that was added to a publication.

    Args:
        oid: The table's object id, which a rename does not change.
        table: The table's present name.
        within: Whether the table is a partition of another table of the publication.
    """

    oid: int
    table: TableId
    within: bool

    def is_of(self, known: Fingerprint) -> bool:
        """Whether a fingerprint is of this table, even if the table was renamed later."""
        return int(known.facts.get("oid", 0)) == self.oid


def _read_members(session: Session, publication: str, source: str) -> list[_Member]:
    """Return the members of a PostgreSQL publication that are outside schema ``tributary``."""
    rows = session.execute(_ADDED, (publication,)).fetchall()
    return [_Member(row[0], TableId(source, row[1], row[2]), row[3]) for row in rows]


def added(session: Session, publication: str, source: str) -> dict[TableId, SentTable]:
    """Return, for each table of a publication, a `SentTable` with the removing statement.

    Tables of schema ``tributary`` and partitions of other tables of the publication are left out.
    """
    return {
        one.table: SentTable(removing(publication, one.table), one.is_of)
        for one in _read_members(session, publication, source)
        if not one.within
    }


def renamed(
    session: Session,
    publication: str,
    source: str,
    oids: Collection[int],
    keep: Collection[TableId],
) -> list[TableId]:
    """Return the tables of a publication with these object ids, under their current names.

    Args:
        session: A session of the publication's owner.
        publication: The publication.
        source: The source's name.
        oids: Object ids of the wanted tables, as Tributary has recorded them.
        keep: Current names of tables to leave out even if ``oids`` contains their object ids. For
            example, two tables can have swapped names.
    """
    found = _read_members(session, publication, source)
    return [one.table for one in found if one.oid in oids and one.table not in keep]
