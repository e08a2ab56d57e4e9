"""Who logs in to the databases of the stack, and the database that is captured."""

from __future__ import annotations

ADMIN = "tributary_admin"
CAPTURE = "tributary_capture"
SNAPSHOT = "tributary_snapshot"
MARKER = "tributary_marker"
PURPOSES = {"admin": ADMIN, "capture": CAPTURE, "snapshot": SNAPSHOT, "marker": MARKER}
"""The roles of the product by what they are for, as ``credentials`` names it."""
REPLICATOR = "stack_replicator"
"""Who replicas log in as; not a role of the product."""
CONNECT = "connect"
"""Who logs in to Kafka Connect's REST interface; no role of a database."""
DATABASE = "shop"
