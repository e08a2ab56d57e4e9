"""The remedies for servers with a binlog, before a table's copy, work, as in test_remedies.py."""

from __future__ import annotations

import pytest

from cdc.sources.source_facts import Check
from operate.check import check
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import CAPTURE
from tests.integration.rigs.kinds import database as database
from tests.integration.rigs.kinds import kinds
from tests.integration.rigs.mysql import mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.person import Person, created
from tests.integration.rigs.person import early as early

pytestmark = [
    pytest.mark.breadth,
    pytest.mark.parametrize("database", kinds(of=(MARIADB, MYSQL)), indirect=True),
]


def hidden(person: Person) -> list[Check]:
    """The lines of `check` on tables of this database that a login cannot see."""
    name = person.shop.database.name
    lines = check(person.shop.services)
    return [one for one in lines if "cannot see" in one.detail and f"`{name}`" in one.remedy]


def test_tables_that_a_login_cannot_see_are_seen_after_the_statement_that_is_told(
    early: Person,
) -> None:
    shop = early.shop
    created(shop, "orders")
    root = mysql_of(shop.database).root
    assert hidden(early) == []
    root(f"REVOKE SELECT ON {shop.database.name}.* FROM {CAPTURE}@'{HOST}'")
    told = hidden(early)
    assert told, "nothing is told"
    for line in told:
        statement = line.remedy.removeprefix("Run ").partition("; or grant SELECT on each")[0]
        root(*statement.split("; "))
    assert hidden(early) == []
    early.done("onboard", "--no-bootstrap", shop.database.label("orders"))
