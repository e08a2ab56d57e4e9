"""The state store: states, attempts, leases, histories and quarantine, with SQLAlchemy."""
