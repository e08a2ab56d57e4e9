"""The versions of PostgreSQL whose log has every change of a table that joins a publication."""

from __future__ import annotations

OLDEST = 14
_WHOLE_SINCE = {14: 18, 15: 13, 16: 9, 17: 5}
"""By major version, the first minor version whose log loses no change of a published table.

In an earlier minor version, the server could look up a table in a publication as of a transaction
from before the table joined. It then cached this result, and left out the table's changes in all
later transactions. Major versions that are not listed here do not have this defect.
"""


def obstacle(version: int) -> tuple[str, str] | None:
    """Return why tables may not join a publication on this version, with the remedy.

    The result is None if tables may join.

    Args:
        version: ``server_version_num``: 150018 for 15.18. The builds of distributions and of
            managed servers have the same number as the release.
    """
    major, minor = divmod(version, 10_000)
    if major < OLDEST:
        return f"version {major} is too old", f"Upgrade the server to {OLDEST} or later."
    whole = _WHOLE_SINCE.get(major, 0)
    if minor >= whole:
        return None
    return (
        f"version {major}.{minor} can leave changes of a table out of the log after a transaction"
        f" that was open while the table joined the publication, which {major}.{whole} repaired",
        f"Upgrade the server to {major}.{whole} or later.",
    )
