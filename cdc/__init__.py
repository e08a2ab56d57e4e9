"""The stream side: sources, Kafka, Connect, the state store, and the runs that update the lake."""
