"""``lineage``: the histories as OpenLineage events of runs, copies and schema changes."""
