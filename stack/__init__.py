"""Runs real databases, Kafka and Connect on one machine, for the demo, tests and benchmarks."""
