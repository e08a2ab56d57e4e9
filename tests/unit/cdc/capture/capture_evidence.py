"""The evidence on a capture: sound, without a connector, and with a source that is down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cdc.capture.evidence import (
    CaptureEvidence,
    CleanupPolicy,
    ConnectorFacts,
    ConnectorHealth,
)
from cdc.connect import ConnectorStatus
from cdc.connect.worker_status import TaskStatus
from cdc.debezium import CaptureNames
from cdc.errors import SourceError
from cdc.log.position import Lsn
from cdc.sources.postgres.slot import SlotHealth

NAMES = CaptureNames("shop", "default", "p", "s", "c", "t", "postgres")
STATUS = ConnectorStatus("c", "RUNNING", "w", tasks=(TaskStatus(0, "RUNNING", "w"),))
RUNNING = ConnectorFacts({}, (), None, ConnectorHealth(STATUS))
SOUND = CaptureEvidence(
    names=NAMES,
    log=cast("Any", SimpleNamespace(title="replication slot s", danger=None)),
    lost=None,
    unreadable=None,
    obstacles=(),
    server=cast("Any", None),
    topics={"t.schema": CleanupPolicy("delete", lagging=False)},
    connector=RUNNING,
    stored=None,
)
DOWN = SourceError("it is down", remedy="Wait.")
AWAY = SourceError("the source does not answer", remedy="Wait.")
SLOT = SlotHealth(
    *("s", True, "reserved", Lsn(1), Lsn(1)),
    retained_bytes=500,
    safe_wal_size=90,
    end=Lsn(9),
    current=lambda: Lsn(9),
)


def without_connector(names: CaptureNames) -> CaptureEvidence:
    """Evidence on a capture whose slot is there, and whose server and connector are unknown."""
    return CaptureEvidence(names, SLOT, None, None, (), AWAY, {}, None, None)
