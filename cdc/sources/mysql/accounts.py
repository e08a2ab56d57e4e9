"""The accounts of MySQL and MariaDB servers, and how statements name them."""

from __future__ import annotations

from cdc.sources.mysql.connection import Session

Account = tuple[str, str]
"""The name and the host of an account on the server."""


def current_account(session: Session) -> Account:
    """Return the account by which the MySQL or MariaDB server authenticated the session."""
    name, _, host = str(session.value("SELECT current_user()")).rpartition("@")
    return name, host


def grant(rights: str, place: str, account: Account) -> str:
    """Return one GRANT statement of MySQL or MariaDB, without a semicolon.

    Args:
        rights: The rights as SQL, for example ``SELECT, INSERT``.
        place: What the rights are granted on, as SQL, for example ``shop.*``.
        account: The account that gets the rights.
    """
    return f"GRANT {rights} ON {place} TO {account_sql(account)}"


def account_sql(account: Account) -> str:
    """Return an account in the syntax of MySQL and MariaDB statements: ``'user'@'host'``."""
    name, host = (part.replace("\\", r"\\").replace("'", "''") for part in account)
    return f"'{name}'@'{host}'"
