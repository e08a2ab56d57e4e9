"""``checks``: executes the checks of tables' data, and keeps their results."""
