"""The logins to the databases of the stack, and the database that is captured."""

from __future__ import annotations

ADMIN = "tributary_admin"
CAPTURE = "tributary_capture"
SNAPSHOT = "tributary_snapshot"
MARKER = "tributary_marker"
PURPOSES = {"admin": ADMIN, "capture": CAPTURE, "snapshot": SNAPSHOT, "marker": MARKER}
"""The roles of the product by purpose, with the names of ``credentials``."""
REPLICATOR = "stack_replicator"
"""The role for the logins of replicas; not a role of the product."""
CONNECT = "connect"
"""The user of Kafka Connect's REST interface; not a role of a database."""
DATABASE = "shop"
