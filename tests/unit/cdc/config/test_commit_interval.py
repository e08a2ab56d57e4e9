"""The shortest time between two commits, and the freshness target of its table."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cdc.config import parse
from cdc.errors import ConfigError
from tests.unit.cdc.configuration import minimal


@pytest.mark.parametrize(
    ("settings", "tiers", "refused"),
    [
        ({"min_commit_interval": "15m"}, {}, False),
        ({"min_commit_interval": "15m", "freshness_target_s": 900}, {}, True),
        ({"min_commit_interval": "14m", "freshness_target_s": 900}, {}, False),
        ({"min_commit_interval": "1h", "tier": "bulk"}, {"bulk": 7200}, False),
        ({"min_commit_interval": "5m", "tier": "fast"}, {"fast": 300}, True),
    ],
)
def test_a_commit_interval_must_be_shorter_than_the_target_of_its_section(
    settings: dict[str, Any], tiers: dict[str, int], refused: bool
) -> None:
    """A section with the interval alone may match tables whose target another section sets."""
    document = minimal() | {"tables": {"public.orders": settings}}
    document["tiers"] = {name: {"freshness_target_s": target} for name, target in tiers.items()}
    if refused:
        with pytest.raises(ConfigError, match="must be shorter than freshness_target_s"):
            parse(yaml.safe_dump(document))
    else:
        parse(yaml.safe_dump(document))
