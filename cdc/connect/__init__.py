"""Access to Kafka Connect's REST API: connectors, their states, and their stored positions."""

from __future__ import annotations

from cdc.connect.client import ConnectClient
from cdc.connect.ownership import INSTALLATION, ConnectorOwner
from cdc.connect.worker_status import (
    ConnectorStatus,
    FieldProblem,
    Plugin,
    TaskStatus,
    Worker,
)

__all__ = [
    "INSTALLATION",
    "ConnectClient",
    "ConnectorOwner",
    "ConnectorStatus",
    "FieldProblem",
    "Plugin",
    "TaskStatus",
    "Worker",
]
