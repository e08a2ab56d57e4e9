"""What a table is: identifiers, columns, types and schema changes. No engine and no driver."""
