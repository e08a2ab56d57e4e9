"""The example's page and settings agree with the commands that its script runs."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cdc.config import parse
from tests.unit.cdc.configuration import minimal

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop"
FOLDERS = ('"$bin/', '"$here/', '"$work/', ".work/", "../../.venv/bin/")
STEP = re.compile(r"^ *(?:if |\w+=\S+ )?(tributary \S+(?: \S+)?|sql|dbt \S+)", re.MULTILINE)


def steps(text: str) -> list[str]:
    """The first words of each call of Tributary, of SQL and of dbt."""
    for folder in FOLDERS:
        text = text.replace(folder, "")
    plain = text.replace('"', "").replace("python sql.py", "sql")
    return STEP.findall(plain)


def test_the_page_has_the_steps_of_the_script_in_their_order() -> None:
    script = (EXAMPLE / "run.sh").read_text("utf-8").split('title "1.')[1]
    page = (EXAMPLE / "README.md").read_text("utf-8")
    blocks = re.findall(r"^ +```sh\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert steps("".join(blocks)) == steps(script)


def test_the_settings_of_the_example_are_ours() -> None:
    shop = yaml.safe_load((EXAMPLE / "tributary.yaml").read_text("utf-8"))
    config = parse(yaml.safe_dump(minimal() | shop))
    settings = config.table_settings(config.table_id("public.orders"))
    assert settings.completeness is not None
    assert {one.kind for one in settings.checks.values()} >= {"not_null", "reference"}
