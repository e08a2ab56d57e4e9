"""From replica to table: the parallel snapshot and its handoff to the stream."""
