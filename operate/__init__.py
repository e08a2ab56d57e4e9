"""The operations of a person: the composition root behind the command line."""
