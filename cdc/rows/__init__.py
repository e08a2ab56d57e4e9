"""Converts Kafka records into the rows of one lake commit: decode, split, fold, mask."""
