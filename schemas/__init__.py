"""Tables as values: identifiers, columns, types and schema changes. No engine and no driver."""
