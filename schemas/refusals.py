"""The reasons why source types without a rule are refused, for errors and the type pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.types_mysql import MysqlType
    from schemas.types_postgres import PostgresType

_NOT_SENT = "not in the topic at all"
_UNPROVEN = "no test has proven that snapshot and stream agree"
_STOPS = "a NULL element, or any value, stops the connector, and with it every table"
_BENT = "the connector converts their elements by another calendar, zone or precision"
_NEVER_EXACT = "not in the topic, or not exactly"
NAMES_OTHERS = (
    "its text has the names of other objects, which a rename changes without an event, so not as"
    " text either"
)
"""Why a type is refused if PostgreSQL prints its values as names of other objects
(see `names_others`)."""

_POSTGRES = {
    "name": "arrives as NULL",
    **dict.fromkeys(("bit", "varbit"), "its length is lost on the way"),
    "numeric": "the topic's digits differ from the source's",
    **dict.fromkeys(
        ("hstore", "tstzrange"),
        "its text depends on the zone of the connector's worker or on hash order",
    ),
    **dict.fromkeys(
        ("point", "line", "lseg", "box", "path", "polygon", "circle"),
        "floating point arrives in another form than the source prints",
    ),
    **dict.fromkeys(
        (
            *("tsquery", "pg_lsn", "pg_snapshot", "txid_snapshot", "xid", "xid8", "cid", "tid"),
            *("jsonpath", "refcursor", "gtsvector", "int2vector", "oidvector", "pg_node_tree"),
        ),
        _NOT_SENT,
    ),
    **dict.fromkeys(
        (
            *("aclitem", "regclass", "regcollation", "regconfig", "regdatabase", "regdictionary"),
            *("regnamespace", "regoper", "regoperator", "regproc", "regprocedure", "regrole"),
            "regtype",
        ),
        NAMES_OTHERS,
    ),
}
_SENT_UNPROVEN = frozenset(("geometry", "geography", "vector", "halfvec", "sparsevec"))
"""Types of extensions whose columns have a field in events. These types have no rule, since no test
has proven a rule for them."""
_ELEMENTS = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _BENT),
    **dict.fromkeys(("ltree", "tsvector", "bit", "varbit"), _STOPS),
}
_MYSQL = {
    "uuid": "the connector garbles it",
    **dict.fromkeys(("inet4", "inet6"), "the connector stops at it, and with it every table"),
    "year": "a copy has two digits of the year, and the connector sends four",
    **dict.fromkeys(
        ("enum", "set"), "the connector sends such a label with its escapes, as a statement has it"
    ),
}


def of_postgres(kind: PostgresType) -> str:
    """Return why a type of PostgreSQL is refused, that is, has no type rule.

    A type without a reason of its own gets a general reason.
    """
    if kind.kind == "d" and kind.base is not None:
        return of_postgres(kind.base)
    if kind.element is not None:
        if kind.element.kind == "e":
            return _STOPS
        return _ELEMENTS.get(kind.element.name, _NEVER_EXACT)
    if kind.kind in ("m", "c"):
        return _NOT_SENT
    return _POSTGRES.get(kind.name, _UNPROVEN)


def names_others(kind: PostgresType) -> bool:
    """Whether a type is refused since its values are printed as names of other objects.

    For example, PostgreSQL prints a ``regclass`` as a table's name. A rename of this table changes
    what PostgreSQL prints for existing rows, and sends no event.
    """
    inner = kind.base or kind.element
    return names_others(inner) if inner is not None else _POSTGRES.get(kind.name) == NAMES_OTHERS


def is_sent(kind: PostgresType) -> bool:
    """Whether events have a field for a column whose PostgreSQL type has no type rule.

    The result is also False if it is not known whether events have such a field.
    """
    if kind.kind == "b" and kind.element is None and kind.name in _SENT_UNPROVEN:
        return True
    return of_postgres(kind) not in (_NOT_SENT, NAMES_OTHERS, _NEVER_EXACT, _UNPROVEN)


def of_mysql(kind: MysqlType) -> str:
    """Return why a type of MySQL or MariaDB is refused, that is, has no type rule.

    A type without a reason of its own gets a general reason.
    """
    if kind.charset and kind.name not in _MYSQL:
        return f"the connector does not read character set {kind.charset} as the server does"
    return _MYSQL.get(kind.name, _UNPROVEN)
