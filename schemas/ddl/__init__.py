"""Statements that change tables, planned or reported by a log, as values."""
