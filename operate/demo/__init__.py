"""A shop that is written to while its tables travel to the lake: what `tributary demo` shows."""
