"""Parses the DDL statements that an operator plans, before the source executes them."""
