"""The operations behind the commands of the command line, and the services that they use."""
