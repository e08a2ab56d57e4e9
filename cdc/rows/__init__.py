"""Turns Kafka records into the rows of one lake commit: decode, key updates, fold, masking."""
