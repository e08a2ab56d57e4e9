"""Parses the DDL statements that an operator plans, or that a binlog contains."""
