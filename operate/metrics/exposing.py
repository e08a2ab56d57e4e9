"""Shows metrics to Prometheus: over HTTP, or as a file for the node exporter."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.registry import Collector

from cdc.errors import ConfigError
from cdc.runtime.progress import NullProgress
from operate.bounded_calls import BoundedCalls, Overdue, result
from operate.context import Services
from operate.metrics import CACHE_S, LOOPBACK, PORT
from operate.metrics.facts import FactReader
from operate.metrics.families import families
from operate.metrics.http import listening
from operate.metrics.text import as_text

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

    from cdc.config import Config
    from cdc.runtime.rounds import Rounds
    from operate.metrics.facts import Facts

BOUND_S = 8.0
"""How long a scrape may take, in seconds. Prometheus waits for 10 s by default."""
_FILE_BOUND_S = 60.0
"""How long a read of the facts for a file may take, in seconds. No scrape waits for this read."""
_KEPT_S = 300.0
"""How long scrapes show the last facts while newer facts are read, in seconds."""

_log = logging.getLogger(__name__)


class _Shown(Collector):
    """A collector of metrics that shows given facts, and reads no facts itself."""

    def __init__(self, config: Config, facts: Facts | None) -> None:
        self._config = config
        self._facts = facts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from families(self._config, self._facts)


class Scrapes(Collector):
    """Answers scrapes (reads by Prometheus). Scrapes at the same time share one read of facts.

    Args:
        config: The configuration.
        reader: Reads the facts.
        cache_s: How long scrapes show the facts of one read, in seconds.
        bound_s: How long a scrape waits for facts, in seconds.
        kept_s: How long scrapes show the facts of one read if the next read takes longer than
            ``bound_s``, in seconds.
    """

    def __init__(
        self,
        config: Config,
        reader: FactReader,
        *,
        cache_s: float,
        bound_s: float,
        kept_s: float = _KEPT_S,
    ) -> None:
        self._config = config
        self._reader = reader
        self._cache_s = cache_s
        self._bound_s = bound_s
        self._kept_s = kept_s
        self._calls = BoundedCalls()
        self._known: tuple[float, Facts] | None = None

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that registering this collector reads no facts."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of one scrape."""
        yield from families(self._config, self.facts())

    def facts(self) -> Facts | None:
        """Return facts that are at most ``cache_s`` old; None if they cannot be read now.

        If a read takes longer than ``bound_s``, the result is the last facts, which can be
        ``kept_s`` old. If a scrape showed no facts, Prometheus would end pending alarms, and the
        wait before each alarm would begin again.
        """
        if (found := self._younger_than(self._cache_s)) is not None:
            return found
        call = self._calls.start("facts", self._read)
        try:
            return result(call, "the facts", time.monotonic() + self._bound_s)
        except Overdue as error:
            _log.warning("metrics: %s", error)
            return self._younger_than(self._kept_s)
        except Exception:  # noqa: BLE001 - unforeseen; it ends this scrape, not the process
            _log.exception("metrics: the facts could not be read")
        return None

    def _younger_than(self, seconds: float) -> Facts | None:
        """Return the facts of the last complete read; None if they are older than ``seconds``."""
        known = self._known
        return known[1] if known is not None and time.monotonic() < known[0] + seconds else None

    def _read(self) -> Facts:
        found = self._reader.read()
        self._known = (time.monotonic(), found)
        return found


@contextmanager
def serving(
    config: Config,
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    cache_s: float = CACHE_S,
    rounds: Rounds | None = None,
) -> Iterator[int]:
    """Answer scrapes over HTTP in the background for a ``with`` block.

    The scrapes share no connections with a run and use no Spark, so they do not disturb the run.

    Args:
        config: The configuration.
        host: The address to listen at.
        port: The port; 0 chooses a free one.
        cache_s: How long scrapes show the facts of one read, in seconds.
        rounds: The rounds of runs in this process; None if this process runs no tables.

    Yields:
        The port.

    Raises:
        ConfigError: The address or port cannot be used.
    """
    services = Services(config, NullProgress())
    reader = FactReader(services, BOUND_S, rounds)
    scrapes = Scrapes(config, reader, cache_s=cache_s, bound_s=BOUND_S)
    with ExitStack() as at_end:
        at_end.callback(services.close)
        try:
            used = at_end.enter_context(listening(host, port, lambda: as_text(scrapes.collect())))
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}",
                remedy="Choose another port with --port, or with --metrics-port for"
                " `tributary run`; or end the process that uses it.",
                field="port",
            ) from None
        yield used


def write_file(services: Services, path: Path) -> bool:
    """Write the metrics to a file in one step: a reader sees the former file or the new file.

    Args:
        services: The services of the command.
        path: The file. The node exporter reads files that end in ``.prom``.

    Returns:
        Whether the state store answered.

    Raises:
        ConfigError: The file cannot be written.
    """
    reader = FactReader(services, BOUND_S)
    scrapes = Scrapes(services.config, reader, cache_s=CACHE_S, bound_s=_FILE_BOUND_S)
    facts = scrapes.facts()
    registry = CollectorRegistry()
    registry.register(_Shown(services.config, facts))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise ConfigError(
            f"the metrics cannot be written to {path}: {error.strerror or error}",
            remedy="Name a file in a folder that exists and that you can write with --textfile.",
            field="textfile",
        ) from None
    return facts is not None and facts.status is not None
