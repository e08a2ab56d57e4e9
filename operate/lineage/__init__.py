"""``lineage``: OpenLineage events of runs, copies and schema changes, from stored histories."""
