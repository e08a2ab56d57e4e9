"""From replica to lake table: the parallel snapshot and its handoff to the stream."""
