"""Positions in a source's log, as comparable values: LSNs, GTID sets, places in a binlog."""
