"""Tributary in Airflow 3: the command `tributary` as tasks, sensors, assets and DAGs.

The command's JSON output and exit codes are the only interface: this package imports nothing of
Tributary.
"""

from __future__ import annotations

__version__ = "0.1.0"


def provider_info() -> dict[str, object]:
    """Return what Airflow shows about this package, and the kind of connection that it adds."""
    return {
        "package-name": "tributary-airflow",
        "name": "Tributary",
        "description": "Replicates PostgreSQL, MySQL and MariaDB tables to Apache Hudi.",
        "versions": [__version__],
        "connection-types": [
            {
                "connection-type": "tributary",
                "hook-class-name": "tributary_airflow.hook.TributaryHook",
                "hook-name": "Tributary",
            }
        ],
    }
