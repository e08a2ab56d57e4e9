"""The only modules that talk SQL to a source."""
