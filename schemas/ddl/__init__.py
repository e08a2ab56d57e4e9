"""Parses DDL statements, planned or reported by a log, into values."""
