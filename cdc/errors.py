"""Errors of the stream side.

Each names what failed and what to do next.
"""

from __future__ import annotations

from schemas.errors import RegistryError as RegistryError
from schemas.errors import TributaryError


class ConfigError(TributaryError):
    """The configuration is wrong; ``field`` is the path of the key."""


class SecretError(ConfigError):
    """A secret reference that does not resolve.

    The error never contains the secret.
    """


class SourceError(TributaryError):
    """A source database that cannot be reached, or that refuses a request."""


class UnreachableError(SourceError):
    """A source database that no session reaches: its host, port or network does not answer."""


class MissingTableError(SourceError):
    """A table that its source does not have, or no longer has."""


class UnseenError(SourceError):
    """Events of transactions that were not visible when the source's catalog was read."""


class ReplicaError(SourceError):
    """A replica that is behind, paused, promoted, or not a standby of this primary."""


class SnapshotLostError(SourceError):
    """A snapshot view that is gone: recovery conflict, lost session, or a changed table."""


class PermanentError(SourceError):
    """A failure that no retry can fix: a missing right, or a value that the lake cannot hold."""


class ConnectError(TributaryError):
    """Kafka Connect is unreachable or refuses a connector, or a connector or task has failed."""


class CaptureError(TributaryError):
    """A table is not captured as it must be (publication, connector, slot)."""


class KafkaError(TributaryError):
    """A broker, topic or partition that is missing, unreachable or wrongly set up."""


class DecodeError(TributaryError):
    """A message that cannot be read; carries topic, partition, offset and schema id."""


class LostHistoryError(TributaryError):
    """The stream no longer follows from the lake's offsets; the table needs a bootstrap."""


class LostLogError(LostHistoryError):
    """A source's log that lost changes, of all tables of the capture."""


class LostEventsError(LostHistoryError):
    """Changes of a table that no topic has, so that every generation of the table lacks them."""


class ReplacedGenerationError(LostHistoryError):
    """A generation that another one has replaced, so it is not published again."""


class SchemaChangeError(TributaryError):
    """A schema change that cannot be applied in place; the table needs a bootstrap."""


class PositionError(TributaryError):
    """Two positions that cannot be compared: of two kinds, or in the logs of two servers.

    Nothing shows which of the two is the earlier one, so any order could be wrong.
    """

    @classmethod
    def of_kinds(cls, mine: object, other: object) -> PositionError:
        """Return the error for two kinds: GTID set and binlog place, or two kinds of servers."""
        return cls(
            f"{mine} and {other} are positions of two kinds: GTIDs were turned on or off on the"
            " source, or its kind has changed",
            remedy="After a change of gtid_mode, run `tributary run`, which marks the tables of"
            " this source, then `tributary bootstrap` for them.",
        )


class PausedByPolicyError(TributaryError):
    """A change that the table's settings leave to a person.

    No part of it was applied.
    """


class LakeError(TributaryError):
    """A Hudi table that cannot be read or written."""


class MissingFolderError(LakeError):
    """A table whose own folder is not in the lake: it is not mounted, or was removed."""


class ClusterError(TributaryError):
    """A cluster of Spark without executors, or whose executors differ from this process."""


class FencedError(LakeError):
    """Another writer has taken over the table since; this run's commit was refused."""


class StoppedError(FencedError):
    """The process was asked to stop.

    The next process continues its unfinished work.
    """


class OlderSettingsError(FencedError):
    """Another process has made the table with newer settings than those of this process."""


class StateError(TributaryError):
    """A state transition that is not allowed, or a state store that is not usable."""


class LeaseHeldError(StateError):
    """Another run holds the table; carries its owner and expiry."""


def copy_again(table: object) -> str:
    """Return the instruction to copy a table again that no run marks as NEEDS_BOOTSTRAP."""
    return f"copy the table again: `tributary resync {table}`"


def copy_lost(table: object) -> str:
    """Return the instruction to copy a table that its next run marks as NEEDS_BOOTSTRAP."""
    return f"run `tributary run {table}`, which marks the table, then `tributary bootstrap {table}`"


def onboard_again(table: object, *, without_data: bool = False) -> str:
    """Return the instruction to offboard a table and onboard it again."""
    option = " --delete-data" if without_data else ""
    return f"run `tributary offboard {table}{option}`, then `tributary onboard {table}`"
