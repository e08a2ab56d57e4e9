"""Errors of the stream side. Each error names what failed and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from schemas.errors import RegistryError as RegistryError
from schemas.errors import TributaryError


class ConfigError(TributaryError):
    """The configuration is wrong; ``field`` is the path of the wrong key."""


class SecretError(ConfigError):
    """A secret reference that does not resolve. The error never contains the secret."""


class SourceError(TributaryError):
    """A source database that cannot be reached, or that refuses a request."""


class UnreachableError(SourceError):
    """A source database that accepts no connection: its host, port or network does not answer."""


class MissingTableError(SourceError):
    """A table that its source does not have, or does not have any more."""


class UnseenError(SourceError):
    """A batch has an event whose transaction was not yet visible when the catalog was read."""


class ReplicaError(SourceError):
    """A replica that lags, is paused, was promoted, or is not a standby of the source's primary."""


class SnapshotLostError(SourceError):
    """A copy lost its view, because of a recovery conflict, a lost session or a changed table."""


class PermanentError(SourceError):
    """A failure that no retry can fix: a missing right, or a value that the lake cannot hold."""


class ConnectError(TributaryError):
    """Kafka Connect is unreachable or refuses a connector, or a connector or task has failed."""


class OtherConnectorError(ConnectError):
    """A connector that another installation made, and that this installation must not change."""


class CaptureError(TributaryError):
    """A table's capture is not as required: its publication, connector, slot or topic."""


class RefusedError(CaptureError):
    """Tables or topics that a capture cannot take, each for a reason of its own."""

    errors: Mapping[object, TributaryError] = MappingProxyType({})
    """The error of each refused table or topic. A key is a `TableId` or the name of a topic."""

    @classmethod
    def of(cls, errors: Mapping[Any, TributaryError]) -> TributaryError:
        """Return one error that represents all errors of refused tables or topics.

        If there is only one error, the result is this error, with its table or topic as ``refused``
        in the context. In any other case, the result has the message of the first error, and the
        number of the other errors.
        """
        first = next(iter(errors.values()))
        if len(errors) == 1:
            return first.naming(refused=next(iter(errors)))
        message = f"{first.message}; {len(errors) - 1} more tables or topics are refused, too"
        found = cls(message, remedy=first.remedy, **first.context)
        found.errors = dict(errors)
        return found


class KafkaError(TributaryError):
    """A broker, topic or partition that is missing, unreachable or wrongly set up."""


class DecodeError(TributaryError):
    """A message that cannot be read; the error names topic, partition, offset and schema id."""


class LostHistoryError(TributaryError):
    """A table's stream of changes does not continue from the lake table; a new copy is needed."""


class LostLogError(LostHistoryError):
    """A source's log has lost uncaptured changes, so any table of the capture may lack changes."""


class LostEventsError(LostHistoryError):
    """Some changes of a table are in no topic, so all its images in the lake lack the changes."""


class ReplacedGenerationError(LostHistoryError):
    """A generation of a table was to be published, although a later generation had replaced it."""


class SchemaChangeError(TributaryError):
    """A schema change that cannot be applied in place; the table needs a bootstrap."""


class PositionError(TributaryError):
    """Two log positions that cannot be compared: their kinds differ, or their servers do.

    Nothing shows which of the positions is earlier, so any order could be wrong.
    """

    @classmethod
    def of_kinds(cls, mine: object, other: object) -> PositionError:
        """Return the error for positions of two kinds, such as a GTID set and a binlog offset."""
        return cls(
            f"{mine} and {other} are positions of two kinds: GTIDs were turned on or off on the"
            " source, or its kind has changed",
            remedy="After a change of gtid_mode, run `tributary run`, which marks the tables of"
            " this source, then `tributary bootstrap` for them.",
        )


class PausedByPolicyError(TributaryError):
    """A table's settings require an operator's decision about a change. Nothing was applied."""


class LakeError(TributaryError):
    """A Hudi table that cannot be read or written."""


class MissingFolderError(LakeError):
    """A lake table whose folder is missing: the lake is not mounted, or the folder was removed."""


class OtherInstallationError(LakeError):
    """A lake table's folder in which another installation has published its own generation."""


class ClusterError(TributaryError):
    """A Spark cluster has no executors, or its executors have other versions than the driver."""


class FencedError(LakeError):
    """A run's commit was refused, because another writer has taken over the table."""


class StoppedError(FencedError):
    """The process was asked to stop. The next process continues the unfinished work."""


class OlderSettingsError(FencedError):
    """Another process has copied or updated a table with newer settings than this process has."""


class StateError(TributaryError):
    """A state transition that is not allowed, or a state store that is not usable."""


class LeaseHeldError(StateError):
    """Another process holds the lease; the error names the process and the lease's expiry."""


def copy_again(table: object) -> str:
    """Return the instruction to copy a table again, for the remedy of an error.

    The instruction is for a table that no run marks NEEDS_BOOTSTRAP. For other tables, see
    `copy_lost`.
    """
    return f"copy the table again: `tributary resync {table}`"


def copy_lost(table: object) -> str:
    """Return the instruction to mark a table and copy it again, for the remedy of an error.

    The instruction is for a table that the next run marks NEEDS_BOOTSTRAP. For other tables, see
    `copy_again`.
    """
    return f"run `tributary run {table}`, which marks the table, then `tributary bootstrap {table}`"


def onboard_again(table: object, *, without_data: bool = False) -> str:
    """Return the instruction to offboard and onboard a table again, for the remedy of an error.

    Args:
        table: The table.
        without_data: Whether the table's data in the lake must be deleted.
    """
    option = " --delete-data" if without_data else ""
    return f"run `tributary offboard {table}{option}`, then `tributary onboard {table}`"


def lake_table_again(table: object) -> str:
    """Return the instruction to delete a shared lake table and to onboard all of its shards again.

    Args:
        table: The shared lake table. Without ``--again``, its name brings no offboarded shard back.
    """
    return (
        f"run `tributary offboard {table} --delete-data`, then `tributary onboard --again {table}`"
    )


def onboard_shards_again(table: object) -> str:
    """Return the instruction to build a shared lake table from nothing, for the remedy of an error.

    If files of a lake table are missing, Tributary does not remove the rows of single shards. So
    all shards (source tables) are offboarded before the lake table is deleted.

    Args:
        table: The shared lake table.
    """
    again = lake_table_again(table)
    return f"run `tributary offboard {table}`, which takes all its shards off the plan; {again}"
