"""The lake: Hudi tables, their commits, and readers' pointers.

No other package writes to Hudi tables.
"""
