"""Whether a table is captured, and whether its stream still follows from the lake."""
