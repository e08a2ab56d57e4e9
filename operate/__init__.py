"""The operations behind the command line, and the composition root."""
