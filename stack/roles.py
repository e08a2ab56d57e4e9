"""The names of the logins to the stack's servers, and of the captured database."""

from __future__ import annotations

ADMIN = "tributary_admin"
CAPTURE = "tributary_capture"
SNAPSHOT = "tributary_snapshot"
MARKER = "tributary_marker"
PURPOSES = {"admin": ADMIN, "capture": CAPTURE, "snapshot": SNAPSHOT, "marker": MARKER}
"""The product's roles by purpose; a purpose is a key of ``credentials`` in the configuration."""
REPLICATOR = "stack_replicator"
"""The role with which replicas log in to their primaries.

The role belongs to the stack, not to Tributary.
"""
CONNECT = "connect"
"""The user of Kafka Connect's REST interface.

The user is no role of a database.
"""
DATABASE = "shop"
