"""Settings of tiers that no table has."""

from __future__ import annotations

import yaml

from cdc.config import parse
from operate.check import _unused_tiers
from tests.records import table_record
from tests.unit.cdc.configuration import minimal


def test_the_settings_of_a_tier_that_no_table_has_are_named() -> None:
    """A misspelt name would leave its tables without their target and share, and say nothing."""
    document = minimal()
    document["tiers"] = {"critcal": {"freshness_target_s": 60}, "bulk": {"pool_share": 0.1}}
    document["tables"] = {"public.a": {"tier": "critical"}}
    config = parse(yaml.safe_dump(document))
    records = [table_record(tier="bulk")]
    (found,) = _unused_tiers(config, records)
    assert (found.name, found.status) == ("tiers.critcal", "warning")
