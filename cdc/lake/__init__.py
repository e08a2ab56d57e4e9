"""The lake: Hudi tables, their commits, and the pointers for readers. No other package writes Hudi.
"""
