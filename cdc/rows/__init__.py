"""From Kafka records to the rows of one lake commit: decode, key updates, fold, masking."""
