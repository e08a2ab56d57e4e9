"""The lines of `check` on a server's settings."""

from __future__ import annotations

import pytest

from cdc.sources.mysql.checks import _retention_check


@pytest.mark.parametrize(
    ("seconds", "on_rds", "status", "detail"),
    [
        (0, False, "ok", "never purged"),
        (30 * 86_400, False, "ok", "kept for 30.0 days"),
        (86_400, False, "warning", "kept for 1.0 days"),
        # Amazon RDS purges by another setting, whatever this one is.
        (30 * 86_400, True, "warning", "`binlog retention hours`"),
    ],
)
def test_how_long_the_binlog_is_kept(seconds: int, on_rds: bool, status: str, detail: str) -> None:
    found = _retention_check(seconds, on_rds=on_rds)
    assert found.status == status
    assert detail in found.detail
    assert bool(found.remedy) == (status == "warning")
