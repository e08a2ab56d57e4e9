"""Prometheus with the shipped rules, its tool for their tests, and the series of one scrape.

A drill cannot wait for an hour, so two things differ from the shipped rules: each alarm has
``for: 0s``, and the growth of the log is measured over 20 seconds instead of one hour.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from stack.ports import HOST, choose
from stack.prometheus_software import prometheus, promtool
from tests.integration.rigs.captured import wait_until

RULES = Path(__file__).parents[3] / "deploy/prometheus/rules.yaml"
_SCRAPE_S = 6
"""Seconds between two scrapes, and the limit of one: if Kafka is down, one takes 3.2 s or more."""
_WAIT_S = 60.0
_EVERYWHERE = {"alertname", "severity", "job", "instance"}


@dataclass(frozen=True)
class Prometheus:
    """A running server that scrapes one process.

    Args:
        port: The port of the server's HTTP API.
    """

    port: int

    def raised(self) -> set[str]:
        """Wait for a scrape that begins after this call; returns the alarms with their own labels.

        Left out are the labels that all alarms have.
        """
        asked = time.time()
        scraped = 0.0

        def came() -> bool:
            nonlocal scraped
            targets = self._get("targets")["activeTargets"]
            if not targets:  # it has just started
                return False
            (target,) = targets
            began = _seconds(target["lastScrape"])
            scraped = began + target["lastScrapeDuration"]
            return target["health"] == "up" and began > asked

        def judged() -> bool:
            groups = self._get("rules")["groups"]
            return all(_seconds(one["lastEvaluation"]) > scraped for one in groups)

        wait_until(came, "a scrape", _WAIT_S)
        wait_until(judged, "the rules after the scrape", _WAIT_S)
        alarms = self._get("alerts")["alerts"]
        assert {one["state"] for one in alarms} <= {"firing"}
        return {_shown(one["labels"]) for one in alarms}

    def series(self, expression: str) -> list[Any]:
        """The series that a PromQL expression gives now."""
        found = self._get("query?" + urllib.parse.urlencode({"query": expression}))["result"]
        assert isinstance(found, list)
        return found

    def answers(self) -> bool:
        """Whether the server has started and answers."""
        try:
            self._get("targets")
        except OSError:
            return False
        return True

    def _get(self, what: str) -> Any:
        address = f"http://{HOST}:{self.port}/api/v1/{what}"
        with urllib.request.urlopen(address, timeout=15) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def watching(folder: Path, scraped: int) -> Iterator[Prometheus]:
    """A Prometheus server for a block; it scrapes the process that listens at port ``scraped``."""
    folder.mkdir()
    (folder / "rules.yaml").write_text(without_waits(RULES.read_text()))
    (folder / "prometheus.yaml").write_text(
        yaml.safe_dump(
            {
                "global": {
                    "scrape_interval": f"{_SCRAPE_S}s",
                    "scrape_timeout": f"{_SCRAPE_S}s",
                    "evaluation_interval": "1s",
                },
                "rule_files": ["rules.yaml"],
                "scrape_configs": [
                    {
                        "job_name": "tributary",
                        "static_configs": [{"targets": [f"{HOST}:{scraped}"]}],
                    }
                ],
            }
        )
    )
    server = Prometheus(choose(["prometheus"])["prometheus"])
    command = [
        str(prometheus()),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{server.port}",
    ]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(server.answers, "Prometheus", _WAIT_S, (folder / "log").read_text)
            yield server
        finally:
            process.kill()


def without_waits(rules: str) -> str:
    """The rules with ``for: 0s``, and with 20 seconds in place of one hour."""
    changed, waits = re.subn(r"(?m)^( +for:) .+$", r"\1 0s", rules)
    changed, windows = re.subn(r"\[1h\]", "[20s]", changed)
    assert (waits > 10, windows) == (True, 4)
    return changed


def _seconds(text: str) -> float:
    """The Unix time of a moment that Prometheus wrote, cut to microseconds for Python's parser."""
    return datetime.fromisoformat(
        re.sub(r"(\.\d{6})\d+", r"\1", text).replace("Z", "+00:00")
    ).timestamp()


def _shown(labels: dict[str, str]) -> str:
    name = labels["alertname"].removeprefix("Tributary")
    more = sorted(f"{key}={value}" for key, value in labels.items() if key not in _EVERYWHERE)
    return " ".join([name, *more])


def run_promtool(folder: Path, tests: list[dict[str, Any]], rules: Path = RULES) -> tuple[int, str]:
    """Run cases of `promtool test rules`; returns its exit code and its output."""
    file = folder / "tests.yaml"
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    command = [str(promtool()), "test", "rules", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def filled(expression: str) -> str:
    """An expression with each dashboard variable replaced by ``.*``, as Grafana does for "All"."""
    return re.sub(r"\$(source|tier|table)\b", ".*", expression)


class Scraped:
    """The result of one scrape; values are found by a metric's name and some labels."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def get(self, name: str, **labels: str) -> float | None:
        """The value of the one series with this name and these labels; None if there is none."""
        found = [
            one.value
            for one in self._samples
            if one.name == f"tributary_{name}" and labels.items() <= one.labels.items()
        ]
        assert len(found) < 2, (name, labels)
        return found[0] if found else None
