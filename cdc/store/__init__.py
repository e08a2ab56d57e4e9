"""The state store: states, attempts, leases, histories and quarantine, by SQLAlchemy."""
