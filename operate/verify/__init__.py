"""The comparison of source and lake, row for row, while both move."""
