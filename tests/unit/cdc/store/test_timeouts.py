"""What drivers are told of how long the state store's server may take."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url

from cdc.store.timeouts import ANSWER_LIMIT_S, CONNECT_LIMIT_S, connect_args


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql+psycopg://u@h/d", {"connect_timeout": CONNECT_LIMIT_S}),
        ("postgresql+psycopg://u@h/d?connect_timeout=3", {}),
        (
            "mariadb+pymysql://u@h/d?read_timeout=300",
            {"connect_timeout": CONNECT_LIMIT_S, "write_timeout": ANSWER_LIMIT_S},
        ),
        ("postgresql+pg8000://u@h/d", {}),
    ],
)
def test_what_the_url_says_goes_before_our_limits(url: str, told: dict[str, int]) -> None:
    assert connect_args(make_url(url)) == told
