"""Compares source and lake row for row while both move."""
