"""The shipped alarm rules, and the sections of their runbooks."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.unit.operate.documents import text

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load(text("deploy/prometheus/rules.yaml"))["groups"]
    for rule in group["rules"]
]
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text("docs/runbooks.md"), re.M | re.S))
