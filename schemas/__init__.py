"""Identifiers, columns, types and changes of tables as plain values, without Spark or drivers."""
