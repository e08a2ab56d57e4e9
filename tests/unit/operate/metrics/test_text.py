"""The text that Prometheus reads is equal to the text of Prometheus' reference client."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from operate.metrics.text import as_text


class Known(Collector):
    def __init__(self, *families: GaugeMetricFamily) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def test_the_text_is_that_of_the_reference_client() -> None:
    odd = GaugeMetricFamily("odd", 'a "help"\nwith \\', labels=("z", "a"))
    for labels, number in (
        (('"', "\\n\n"), 1e9 + 0.5),
        (("", "ü"), float("inf")),
        (("x", "y"), float("nan")),
        (("b", "c"), -12_345_678.0),
        (("d", "e"), 1e-7),
    ):
        odd.add_metric(labels, number)
    shared = GaugeMetricFamily("shared", "Its labels are those of another family.")
    shared.samples = [one._replace(name="shared", value=7.0) for one in odd.samples]
    plain = GaugeMetricFamily("plain", "It has no labels.", value=0)
    registry = CollectorRegistry()
    registry.register(Known(odd, shared, plain))
    assert as_text([odd, shared, plain]) == generate_latest(registry)
