"""The parallel copy of a table from the replica to the lake, and the handoff to the stream."""
