"""A real source side on one machine from released artifacts: for demo, tests and benchmarks."""
