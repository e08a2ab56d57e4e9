"""Tests that run for each kind of source: their parameters, and a database of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from stack.mysql_software import MARIADB, MYSQL
from stack.postgres import POSTGRES
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.mysql import had, own_mysql_database
from tests.integration.rigs.postgres import own_database

KINDS = (POSTGRES, MARIADB, MYSQL)

Test = TypeVar("Test", bound=Callable[..., None])


def kinds(*always: str, of: tuple[str, ...] = KINDS) -> list[Any]:
    """Test parameters for each kind; kinds that are not in ``always`` run in `test-all` only."""
    marks = {kind: () if kind in always else pytest.mark.breadth for kind in of}
    return [pytest.param(kind, marks=mark) for kind, mark in marks.items()]


def for_each_kind(*always: str) -> Callable[[Test], Test]:
    """Run a test on a database of each kind; kinds not in ``always`` only in `make test-all`."""
    return pytest.mark.parametrize("database", kinds(*always), indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[OwnDatabase]:
    """A database of a test's own, of the kind that the test is parametrized with."""
    with database_of(request, request.param) as created:
        yield created


@contextmanager
def database_of(request: pytest.FixtureRequest, kind: str) -> Iterator[OwnDatabase]:
    """A database of that kind, for a block; the first such call starts the stack it needs."""
    if kind == POSTGRES:
        with own_database(request.getfixturevalue("stack")) as created:
            yield created
    else:
        stack = request.getfixturevalue("mysql_stack")
        with own_mysql_database(stack, had(stack, kind)) as made:
            yield made
