"""Copies a table from the replica to the lake in parallel, and hands it over to the stream."""
