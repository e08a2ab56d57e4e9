"""The whole configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, PrivateAttr

from cdc.config.kafka import ConnectConfig, KafkaConfig
from cdc.config.lake import CatalogConfig, LakeConfig, SparkConfig, StateConfig
from cdc.config.matching import Matching, Resolved, overlay_with_tier
from cdc.config.patterns import Pattern, pattern_problem
from cdc.config.shards import copy_path, described, fed_by, shard_conflicts, shard_of, sharded
from cdc.config.source import SourceConfig, SourceName
from cdc.config.tables import (
    TableSettings,
    TierName,
    TierSettings,
    is_append_tier,
    overlay,
)
from cdc.config.templates import (
    CAPTURE_PLACES,
    TABLE_PLACES,
    Conflict,
    fill,
    fill_name,
    template_problems,
)
from cdc.config.value_types import Section
from cdc.config.value_types import defaults as section_defaults
from cdc.errors import ConfigError, onboard_again
from schemas.table import Shard, TableId

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Index:
    """A cache in a configuration.

    All caches are equal to each other, so a filled cache does not make two configurations with the
    same settings unequal.
    """

    def __init__(self) -> None:
        self.matching: Matching | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Index)

    __hash__ = None  # type: ignore[assignment]


class Config(Section):
    """Everything in ``tributary.yaml``."""

    sources: Mapping[SourceName, SourceConfig]
    """Source databases, each under a short name of your choice."""
    kafka: KafkaConfig
    """The addresses of the brokers and the schema registry, and the settings of topics."""
    connect: ConnectConfig
    """The Kafka Connect cluster that runs Debezium."""
    lake: LakeConfig
    """The lake that the tables are written to."""
    catalog: CatalogConfig | None = None
    """A Hive Metastore in which readers find the tables by name."""
    state: StateConfig = Field(default_factory=section_defaults)
    """The address of the state store, which has the tables' states, leases and run history."""
    spark: SparkConfig = Field(default_factory=section_defaults)
    """The settings of the Spark session."""
    defaults: TableSettings = Field(default_factory=section_defaults)
    """Settings of all tables."""
    tiers: Mapping[TierName, TierSettings] = Field(default_factory=section_defaults)
    """Settings of tiers. Each key is the name of a tier, as in the setting tier of tables."""
    tables: Mapping[str, TableSettings] = Field(default_factory=section_defaults)
    """Settings of single tables, by schema.table or source:schema.table; * and ? are wildcards."""
    _index: _Index = PrivateAttr(default_factory=_Index)

    def source(self, name: str) -> SourceConfig:
        """Return the section of a source.

        Raises:
            ConfigError: There is no such source.
        """
        if name not in self.sources:
            raise ConfigError(
                f"source {name} is not configured; the sources are"
                f" {', '.join(sorted(self.sources))}",
                remedy=f"Put sources.{name} back if tables of it are on the plan: also"
                " `tributary offboard` needs it, with --source-gone if the server is gone for good."
                " Otherwise name one of the configured sources, or add this one.",
                field=f"sources.{name}",
            )
        return self.sources[name]

    def table_id(self, text: str) -> TableId:
        """Parse a table's name. If only one source is configured, the name may omit the source.

        Raises:
            InvalidIdentifierError: The text does not name a table.
            ConfigError: The text names a source that is not configured.
        """
        only = next(iter(self.sources)) if len(self.sources) == 1 else None
        table = TableId.parse(text, default_source=only)
        self.source(table.source)
        return table

    def table_settings(self, table: TableId) -> TableSettings:
        """Return a table's settings: the defaults, overridden by its tier and matching sections.

        Raises:
            ConfigError: The combined settings cannot work.
        """
        found = self._settings_of(table)
        for path, reason in found.conflicts:
            field = ".".join(path)
            raise ConfigError(
                f"settings of table {table}: {field}: {reason}",
                remedy="Change defaults or the patterns under tables that match this table.",
                field=field,
                table=table,
            )
        return found.settings

    def _settings_of(self, table: TableId) -> Resolved:
        known = self._index.matching
        # A copy of the configuration with other sections has the index of the original.
        if known is None or any(
            one is not other
            for one, other in (
                (known.base, self.defaults),
                (known.sections, self.tables),
                (known.tiers, self.tiers),
            )
        ):
            known = self._index.matching = Matching(self.defaults, self.tables, self.tiers)
        return known.of(table)

    def settings_on_plan(self, table: TableId, tier: str) -> TableSettings:
        """Return a table's settings; refuse a mode that differs from the mode at onboarding.

        Args:
            table: The table.
            tier: The tier of the table's capture, which shows the mode at onboarding.

        Raises:
            ConfigError: The mode has changed. The table must be onboarded again, since an append
                table cannot become a table with a key, or the reverse.
        """
        settings = self.table_settings(table)
        if settings.appends != is_append_tier(tier):
            was = "append" if is_append_tier(tier) else "upsert"
            raise ConfigError(
                f"table {table} was onboarded with mode: {was}, but its settings now have mode:"
                f" {settings.mode}",
                remedy=f"Set mode: {was} for the table; or"
                f" {onboard_again(table, without_data=True)}.",
                field="mode",
                table=table,
            )
        return settings

    def shard(self, table: TableId) -> Shard | None:
        """Return a source table's `Shard` if the settings make the table a shard, else None.

        A shard is one of several source tables that feed one lake table together.

        Raises:
            ConfigError: The settings name the source table in the ``from`` of two lake tables.
        """
        name = fed_by(table, self.tables)
        if name is None:
            return None
        return shard_of(table, name, self.tables[name], self.lake.url)

    @property
    def pool_shares(self) -> dict[str, float]:
        """A mapping from each tier with the setting ``pool_share`` to the value of this setting."""
        tiers = self.tiers.items()
        return {name: tier.pool_share for name, tier in tiers if tier.pool_share is not None}

    def require_shard(self, table: TableId, known: Shard | None) -> None:
        """Check that the settings make a table the same shard as at onboarding, or still no shard.

        Args:
            table: The table.
            known: The table's shard at onboarding; None if the table was no shard.

        Raises:
            ConfigError: The table has become a shard, is no shard any more, or has become a
                different shard.
        """
        if (now := self.shard(table)) != known:
            raise ConfigError(
                f"table {table} was onboarded as {described(known)}, but its settings now make it"
                f" {described(now)}",
                remedy=f"Set from, shard, shard_column and name back; or {onboard_again(table)}.",
                table=table,
                field="from",
            )

    @property
    def sharded(self) -> frozenset[str]:
        """Names of the configured lake tables that several source tables feed."""
        return frozenset(sharded(self.tables))

    def table_path(self, table: TableId) -> str:
        """Return the folder of a source table's lake table, from the configured template.

        For a shard, this is the folder of the shard's copy, and not the folder of the shared lake
        table.

        Names are encoded, so that no name leads out of the lake's folder.
        """
        if (shard := self.shard(table)) is not None:
            return copy_path(shard)
        return self.own_path(table)

    def own_path(self, table: TableId) -> str:
        """Return the configured folder of a source table that is no shard."""
        template = self.table_settings(table).name or self.lake.name
        return f"{self.lake.url}/{fill(template, table)}"

    def catalog_name(self, table: TableId, shard: Shard | None = None) -> tuple[str, str] | None:
        """Return a lake table's database and name in the Hive Metastore.

        The result is None if no metastore is configured.

        Args:
            table: The source table.
            shard: The source table's shard; the result is then the name of the shared lake table.
                None if the source table is no shard.
        """
        if self.catalog is None:
            return None
        if shard is not None:
            database, _, name = shard.of.lower().rpartition(".")
            return database, name
        return fill_name(self.catalog.database, table), fill_name(self.catalog.table, table)

    def conflicts(self) -> list[Conflict]:
        """Return combinations in ``tributary.yaml`` that cannot work, as (key path, problem)."""
        found: list[Conflict] = []
        if not self.sources:
            found.append((("sources",), "must name at least one source"))
        if self.state.sqlite and not self.spark.local:
            reason = (
                "SQLite works only with a local Spark master; "
                "use a PostgreSQL or MySQL URL, or spark.master: local[*]"
            )
            found.append((("state", "url"), reason))
        shares = sum(self.pool_shares.values())
        if shares > 1.0 + 1e-9:
            found.append((("tiers",), f"the pool_share of all tiers is {shares:g}, more than 1"))
        found += self._name_conflicts()
        found += self._capture_conflicts()
        found += self._exactly_once_conflicts()
        found += self._hash_conflicts()
        found += self._shard_conflicts()
        found += [(("defaults", *path), reason) for path, reason in self.defaults.conflicts()]
        for text, settings in self.tables.items():
            if not settings.from_ and (problem := pattern_problem(text, self.sources)):
                found.append((("tables", text), problem))
            found += [
                (("tables", text, *path), reason)
                for path, reason in overlay(self.defaults, [settings]).conflicts()
                if path[0] in settings.model_fields_set
            ]
        found += self._interval_conflicts()
        return found

    def _interval_conflicts(self) -> Iterator[Conflict]:
        """Yield the sections whose commits would always come too late.

        A section is judged if it sets ``min_commit_interval``, and ``freshness_target_s`` or
        ``tier`` as well. A section without these is not judged, since its tables can have them from
        another section.
        """
        for place, settings in self._all_settings():
            known = overlay_with_tier(self.defaults, [settings], self.tiers)
            both = {"freshness_target_s", "tier"} & settings.model_fields_set
            if not both or settings.min_commit_interval is None:
                continue
            if known.min_commit_interval_s >= known.freshness_target_s:
                yield (
                    (*place, "min_commit_interval"),
                    f"must be shorter than freshness_target_s, which is {known.freshness_target_s}"
                    " s: otherwise each commit comes too late",
                )

    def _shard_conflicts(self) -> Iterator[Conflict]:
        if self.defaults.from_:
            yield ("defaults", "from"), "is allowed only in sections under tables"
        yield from shard_conflicts(self.tables, self.sources)
        for name in sorted(self.sharded):
            if self.catalog is not None and "." not in name:
                yield (
                    ("tables", name),
                    "must be database.table, since it has from and there is a catalog",
                )

    def _hash_conflicts(self) -> Iterator[Conflict]:
        if self.lake.hash_key is None:
            for place, settings in self._all_settings():
                if settings.columns.hash:
                    yield (*place, "columns", "hash"), "needs lake.hash_key"

    def _all_settings(self) -> Iterator[tuple[tuple[str, ...], TableSettings]]:
        yield ("defaults",), self.defaults
        for text, settings in self.tables.items():
            yield ("tables", text), settings

    def _exactly_once_conflicts(self) -> Iterator[Conflict]:
        if self.connect.exactly_once:
            return
        for place, settings in self._all_settings():
            if settings.appends:
                reason = (
                    "append needs connect.exactly_once: otherwise a crash of a worker repeats rows,"
                    " and repeated rows cannot be distinguished from equal ones"
                )
                yield (*place, "mode"), reason
            if settings.completeness is not None:
                reason = (
                    "needs connect.exactly_once: otherwise a heartbeat can be in Kafka before an"
                    " earlier change, so nothing proves that a period is complete"
                )
                yield (*place, "completeness"), reason

    def _name_conflicts(self) -> Iterator[Conflict]:
        """Yield malformed templates of lake names, and templates that give two tables one name."""
        several = {"source"} if len(self.sources) > 1 else set()
        everything = {"schema", "table"} | several
        yield from template_problems(("lake", "name"), self.lake.name, TABLE_PLACES, everything)
        if self.catalog is not None:
            whole = f"{self.catalog.database}.{self.catalog.table}"
            yield from template_problems(("catalog", "table"), whole, TABLE_PLACES, everything)
        if self.defaults.name is not None:
            path = ("defaults", "name")
            yield from template_problems(path, self.defaults.name, TABLE_PLACES, everything)
        for text, settings in self.tables.items():
            if settings.name is None or settings.from_:
                continue
            if not pattern_problem(text, self.sources):
                open_parts = Pattern.parse(text).open_parts - ({"source"} - several)
                place = ("tables", text, "name")
                yield from template_problems(place, settings.name, TABLE_PLACES, open_parts)

    def _capture_conflicts(self) -> Iterator[Conflict]:
        """Yield malformed templates of capture names, and templates that give equal names."""
        wanted = [self.defaults, *(overlay(self.defaults, [one]) for one in self.tables.values())]
        tiers = {settings.capture_tier for settings in wanted}
        taken: dict[tuple[str, str], str] = {}
        for name, source in self.sources.items():
            for key, template in source.name_templates().items():
                place = ("sources", name, key)
                problems = list(template_problems(place, template, CAPTURE_PLACES, set()))
                yield from problems
                for tier in () if problems else sorted(tiers):
                    filled = template.format(source=name, tier=tier).replace(".", "_")
                    # Publication names must be unique in a database, so in one source. Names of
                    # topics and connectors must be unique everywhere, and a PostgreSQL source's
                    # connector has the name of its slot.
                    what = {"publication": f"{name}:{key}", "slot": "connector"}.get(key, key)
                    owner = f"source {name}, tier {tier}"
                    if other := taken.get((what, filled)):
                        reason = f"gives the same name, {filled}, to {other} and {owner}"
                        yield place, reason
                    taken[what, filled] = owner

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of ``tributary.yaml``, for editors and for deployment checks."""
        schema = _schema_with_references(cls.model_json_schema())
        return {"$schema": SCHEMA_DIALECT, **schema, "title": "tributary.yaml"}


def _schema_with_references(schema: Any) -> Any:
    """Return a JSON Schema of the configuration that also accepts references for plain values.

    The plain values are numbers, booleans and enums.

    A reference is a string such as ``${PORT}``.
    """
    if isinstance(schema, list):
        return [_schema_with_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("integer", "boolean") or "enum" in schema:
        about = {key: schema[key] for key in ("default", "description", "title") if key in schema}
        bare = {key: value for key, value in schema.items() if key not in about}
        return {"anyOf": [bare, {"type": "string", "pattern": r"\$\{"}], **about}
    return {key: _schema_with_references(value) for key, value in schema.items()}
