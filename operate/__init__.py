"""What a person does: the composition root behind the command line."""
