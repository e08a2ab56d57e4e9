"""Parses the DDL statements that the source has executed, as a binlog contains them."""
