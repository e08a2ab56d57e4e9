"""Finds out whether a table is captured, and whether its stream continues from the lake."""
