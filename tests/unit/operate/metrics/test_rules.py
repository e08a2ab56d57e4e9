"""The alarm rules name metrics that exist, and each has its runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest

from operate.metrics import metric_definitions as m
from tests.unit.operate.documents import ROOT_COMMAND, text
from tests.unit.operate.metrics.alarm_rules import RULES, SECTIONS


def alarm_table() -> str:
    """The table of alarms for the page of the docs, generated from the rules."""
    rows = ["| alarm | severity | for | what it says |", "|---|---|---|---|"]
    for rule in RULES:
        said = re.sub(r"{{ \$(?:labels\.)?(\w+) }}", r"*\1*", rule["annotations"]["summary"])
        link = f"[{rule['alert']}]({rule['annotations']['runbook'].removeprefix('docs/')})"
        rows.append(
            f"| {link} | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {said} |"
        )
    return "\n".join(rows)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_on_metrics_that_exist_and_labels_that_they_have(rule: dict[str, Any]) -> None:
    known = {one.full_name: one for one in m.METRICS}
    used = re.findall(r"\b(tributary_\w+)(?:\{(\w+)=)?", rule["expr"])
    assert used
    for name, label in used:
        assert name in known
        assert not label or label in known[name].labels
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown <= {label for name, _ in used for label in known[name].labels}


def test_each_alarm_has_a_section_that_names_a_command_and_no_section_is_left_over() -> None:
    names = [rule["alert"] for rule in RULES]
    assert sorted(SECTIONS) == sorted(names)
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor) == ("docs/runbooks.md", rule["alert"].lower())
        assert re.search(r"`tributary\s+\w+|#tributary\w+", SECTIONS[rule["alert"]])
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_runbooks_name_metrics_and_commands_that_exist() -> None:
    page = text("docs/runbooks.md")
    metrics = set(re.findall(r"`(tributary_\w+)", page))
    assert metrics <= {one.full_name for one in m.METRICS}
    assert len(metrics) > 8
    assert set(re.findall(r"`tributary\s+(\w[\w-]*)", page)) <= set(ROOT_COMMAND.commands)
    anchors = {name.lower() for name in SECTIONS}
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= anchors


def test_the_page_lists_every_alarm() -> None:
    table = alarm_table()
    assert table in text("docs/observe.md"), f"write its table of alarms again:\n{table}"
