"""Positions in a source's log, as ordered values: LSN, GTID sets, places in a binlog."""
