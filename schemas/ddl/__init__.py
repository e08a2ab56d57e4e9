"""Parses DDL statements into values: planned statements, and statements in a binlog."""
