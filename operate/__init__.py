"""What each command does, and the clients of servers that commands share."""
