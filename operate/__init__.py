"""The work of each command, and the shared clients with which commands query the servers."""
