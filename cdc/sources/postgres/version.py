"""The versions of PostgreSQL from whose log every change of a published table can be read."""

from __future__ import annotations

OLDEST = 14
_WHOLE_SINCE = {14: 18, 15: 13, 16: 9, 17: 5}
"""A mapping from major version to the first minor version whose log has all published changes.

If a transaction was open while a table joined a publication, a server of an earlier minor version
can read the publication's tables without this table. The server then caches this result, and leaves
out the table's changes in all later transactions. Major versions that are not listed here do not
have this defect.

The listed minor versions have another defect, which the next minor versions repaired. To read the
log, the server copies notices of catalog changes from each transaction to all overlapping
transactions, and copies the copies, too. In the end, memory does not suffice, and the log cannot be
read.
"""


def obstacle(version: int) -> tuple[str, str] | None:
    """Return why no table may join a publication on this PostgreSQL version, and the remedy.

    The result is None if tables may join, since the version has no known defect.

    Args:
        version: ``server_version_num``: 150018 for 15.18. The builds of distributions and of
            managed servers have the same number as the release.
    """
    major, minor = divmod(version, 10_000)
    if major < OLDEST:
        return f"version {major} is too old", f"Upgrade the server to {OLDEST} or later."
    whole = _WHOLE_SINCE.get(major)
    if whole is None or minor > whole:
        return None
    if minor == whole:
        problem = (
            f"version {major}.{minor} can run out of memory while a connector reads its log"
            " (`invalid memory alloc request size`), after a table joins the publication or"
            " another change of the catalog"
        )
    else:
        problem = (
            f"version {major}.{minor} can leave changes of a table out of the log after a"
            " transaction that was open while the table joined the publication"
        )
    return (
        f"{problem}, which {major}.{whole + 1} repaired",
        f"Upgrade the server to {major}.{whole + 1} or later.",
    )
