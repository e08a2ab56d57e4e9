"""Markers on MySQL and MariaDB: written at the same time, and deleted once they are old."""

from __future__ import annotations

from uuid import uuid4

import pytest

from cdc.errors import SourceError
from cdc.sources.mysql import preparation, primary
from stack.roles import MARKER
from tests.integration.rigs.mysql import database as database
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.mysql_lab import Lab
from tests.integration.rigs.mysql_lab import lab as lab


def test_a_marker_waits_for_no_other_marker(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DELETE without an index would lock all markers, so all processes would write in turn."""
    preparation.prepare(lab.connections)
    for _ in range(3):
        primary.write_marker(lab.connections)
    monkeypatch.setattr(primary, "_PRUNING", primary.Pruning())  # so the next one deletes, too
    with lab.connections.open("marker") as other:
        other.rows("START TRANSACTION")
        other.rows("INSERT INTO tributary.marker (id, server) VALUES (%s, 's')", (str(uuid4()),))
        assert primary.write_marker(lab.connections).id
        other.rows("ROLLBACK")


@pytest.mark.breadth
def test_old_markers_are_deleted_once_an_hour(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index a deletion locks all markers, so others wait until it ends."""
    clock = [0.0]
    monkeypatch.setattr(primary, "_PRUNING", primary.Pruning(lambda: clock[0]))
    lab.database.root("DROP TABLE IF EXISTS tributary.marker")
    preparation.prepare(lab.connections)
    indexes = lab.database.root("SHOW INDEX FROM tributary.marker WHERE Key_name <> 'PRIMARY'")
    assert [row[4] for row in indexes] == ["written_at"]

    def old_ones_left() -> int:
        lab.database.root(
            "INSERT INTO tributary.marker (id, written_at) VALUES (uuid(), now() - INTERVAL 31 DAY)"
        )
        written = primary.write_marker(lab.connections)
        found = lab.database.root("SELECT id, server FROM tributary.marker")
        assert (str(written.id), written.system_identifier) in found
        return sum(server is None for _, server in found)

    assert [old_ones_left(), old_ones_left()] == [0, 1]
    clock[0] += 3_599.0
    assert old_ones_left() == 2
    clock[0] += 1.0
    lab.database.root(f"REVOKE DELETE ON tributary.marker FROM {MARKER}@'127.0.0.1'")
    try:
        for _ in range(2):
            with pytest.raises(SourceError, match="denied"):
                primary.write_marker(lab.connections)
    finally:
        lab.database.root(f"GRANT DELETE ON tributary.marker TO {MARKER}@'127.0.0.1'")
    assert old_ones_left() == 0
