"""Uses the capture and folder that a table got at onboarding; refuses settings that change them.

The names of captures and the folders of tables come from templates in the configuration. If a
template is edited, the connector continues to write to the former topics, and readers continue to
read the former folder. So each table's record keeps the names and the folder of its onboarding.
Commands use the recorded names and folder. Runs and copies refuse a table if its present settings
give a different name or folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.config.tables import configured_tier
from cdc.debezium import CaptureNames, names
from cdc.errors import ConfigError, onboard_again
from cdc.store.table_state import CaptureRecord, TierCapture

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


def capture_record(capture: CaptureNames) -> CaptureRecord:
    """Return a capture's names in the form in which a table's record keeps them."""
    return CaptureRecord(
        topic_prefix=capture.topic_prefix,
        connector=capture.connector,
        publication=capture.publication,
        slot=capture.slot,
    )


def captured_by(capture: CaptureNames, table: TableId) -> TierCapture:
    """Return a capture and its topic for a table, in the form that the table's record keeps."""
    return TierCapture(capture.tier, capture.topic(table), capture_record(capture))


def capture_of(config: Config, record: TableRecord) -> CaptureNames:
    """Return the names of a table's capture as they were when the table was onboarded.

    If the table's record has no names, the result has the names from the present settings.

    Raises:
        ConfigError: The table's source is not configured.
    """
    return names_of(config, record.table.source, record.captured)


def names_of(config: Config, source_name: str, of: TierCapture) -> CaptureNames:
    """Return the names of a tier's capture as the record of a table keeps them.

    If the record has no names, the result has the names from the present settings.

    Args:
        config: The configuration.
        source_name: The name of the table's source.
        of: The capture, as the table's record keeps it.

    Raises:
        ConfigError: The source is not configured.
    """
    source, known = config.source(source_name), of.capture
    if known is None:
        return names(source_name, source, of.tier)
    return CaptureNames(
        source=source_name,
        tier=of.tier,
        publication=known.publication,
        slot=known.slot,
        connector=known.connector,
        topic_prefix=known.topic_prefix,
        kind=source.kind,
    )


def require_as_onboarded(config: Config, record: TableRecord) -> None:
    """Refuse settings that give a table a different capture or folder than its onboarding did.

    `Config.require_shard` does the same for the folder of a shard.

    Raises:
        ConfigError: The settings give another name or another folder. The error names the setting
            with its former and its present value.
    """
    if record.table.source in config.sources:
        capture = names(record.table.source, config.source(record.table.source), record.tier)
        require_same_names(record.table, record.captured, capture)
    if record.shard is None and (now := config.own_path(record.table)) != record.base_path:
        raise ConfigError(
            f"table {record.table} was onboarded to {record.base_path}, but lake.url and its name"
            f" now give {now}",
            remedy="Set lake.url, lake.name and name of the table back, also after a move of the"
            f" lake's files, which name their former place; or {onboard_again(record.table)}.",
            table=record.table,
            field="lake.url" if not record.base_path.startswith(f"{config.lake.url}/") else "name",
        )


def require_same_names(table: TableId, of: TierCapture, now: CaptureNames) -> None:
    """Refuse names of a capture that differ from those with which a table was onboarded.

    Args:
        table: The table that was onboarded.
        of: The capture as the table's record names it.
        now: The configured names of the capture.

    Raises:
        ConfigError: A name differs. The error names the setting with its former and present value.
    """
    known = of.capture
    if known is None or known == capture_record(now):
        return
    # A PostgreSQL source's connector has the name of its slot.
    settings = ("topic_prefix", "publication", "slot" if now.kind == "postgres" else "connector")
    edited = {
        f"sources.{now.source}.{name}": (getattr(known, name), getattr(now, name))
        for name in settings
        if getattr(known, name) != getattr(now, name)
    }
    found = "; ".join(
        f"{name} gave {was} then, and gives {is_} now" for name, (was, is_) in edited.items()
    )
    raise ConfigError(
        f"table {table} was onboarded with other names of its capture: {found}",
        remedy=f"Set {' and '.join(edited)} back; or run `tributary offboard` for all tables of"
        f" source {now.source} in tier {configured_tier(now.tier)}, which removes the capture with"
        " the former names, then `tributary onboard` for them.",
        table=table,
        field=next(iter(edited)),
    )
