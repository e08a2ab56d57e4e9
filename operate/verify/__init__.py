"""``verify``: compares source and lake row by row while both change."""
