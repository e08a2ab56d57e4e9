"""The shop of `tributary demo`, whose tables are written to while they are replicated."""
