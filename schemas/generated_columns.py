"""Finds generated columns of MySQL and MariaDB whose values changed in old rows without an event.

If a statement alters a column, the server recomputes each generated column that depends on this
column. The binlog then has the statement, but no events of the changed rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from schemas.catalog import Catalog
from schemas.changes import LoseEvents, Verdict
from schemas.statement_effects import StatementEffects
from schemas.widening import definition, same_for_expressions


def recomputed(
    before: Catalog, now: Catalog, replicated: Collection[str], statements: StatementEffects
) -> Iterator[LoseEvents]:
    """Yield a change for each generated column that an ALTER of a column can have recomputed.

    An ALTER recomputes the altered column if it is generated. It also recomputes each generated
    column that uses the altered column, directly or through other generated columns.

    Args:
        before: The catalog that the lake follows.
        now: The catalog now.
        replicated: The columns that are in the lake and that the settings replicate.
        statements: The effects of the statements in the binlog.
    """
    # Only the catalogs of MySQL and MariaDB have this fact.
    expressions: Mapping[str, str] = now.rest.get("expressions", {})
    causes = {
        new.name: new.name
        for old, new in now.kept_columns(before)
        if expressions
        if statements.redefined(old, new)
        or (
            definition(old) != definition(new)
            if new.name in expressions
            else not same_for_expressions(old, new)
        )
    }
    while more := {
        name: causes[used]
        for name, text in expressions.items()
        for used in causes
        if name not in causes and _expression_uses_column(text, used)
    }:
        causes |= more
    for name in sorted(expressions.keys() & causes.keys() & {*replicated}):
        cause = causes[name]
        yield LoseEvents(
            verdict=Verdict.BOOTSTRAP,
            why="the server computes its value in old rows again, without an event",
            fact=f"generated column {name!r} was altered"
            if name == cause
            else f"column {cause!r} was altered, and generated column {name!r} is computed from it",
        )


def _expression_uses_column(expression: str, column: str) -> bool:
    """Whether a generated column's expression, as the catalog prints it, contains a column's name.

    The result is also true if the name occurs only in a string literal of the expression. The table
    then gets a new copy that it would not need.
    """
    text, name = (one.replace("``", "`").replace("\\", "") for one in (expression, column))
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.IGNORECASE) is not None
