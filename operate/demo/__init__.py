"""The shop of `tributary demo`: written to while its tables travel to the lake."""
