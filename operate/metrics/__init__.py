"""``metrics``: the state of tables, captures and services as Prometheus metrics."""
