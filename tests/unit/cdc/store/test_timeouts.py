"""The time limits for the state store's server that are given to the database drivers."""

from __future__ import annotations

import psycopg
import pytest
from pymysql.err import InternalError, OperationalError
from sqlalchemy.engine import make_url

from cdc.store.timeouts import ANSWER_LIMIT_S, CONNECT_LIMIT_S, connect_args, takes_no_writes


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "postgresql+psycopg://u@h/d",
            {"connect_timeout": CONNECT_LIMIT_S, "prepare_threshold": None},
        ),
        ("postgresql+psycopg://u@h/d?connect_timeout=3", {"prepare_threshold": None}),
        (
            "mariadb+pymysql://u@h/d?read_timeout=300",
            {"connect_timeout": CONNECT_LIMIT_S, "write_timeout": ANSWER_LIMIT_S},
        ),
        ("postgresql+pg8000://u@h/d", {}),
    ],
)
def test_what_the_url_says_goes_before_our_limits(url: str, told: dict[str, int]) -> None:
    assert connect_args(make_url(url)) == told


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE"), True),
        (psycopg.errors.UniqueViolation("duplicate key"), False),
        (OperationalError(1290, "running with the --read-only option"), True),
        (InternalError(1792, "Cannot execute statement in a READ ONLY transaction"), True),
        (InternalError(1836, "Running in read-only mode"), True),
        (OperationalError(1205, "Lock wait timeout exceeded"), False),
        (ValueError(), False),
    ],
)
def test_a_server_that_takes_no_writes_is_known_by_its_error(
    error: Exception, expected: bool
) -> None:
    assert takes_no_writes(error) is expected
