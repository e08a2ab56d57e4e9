"""From topic to table: sources, Kafka, Connect, state, and the incremental run into the lake."""
