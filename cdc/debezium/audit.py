"""Compares a connector's effective configuration with the settings that the handoff needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cdc.config.value_types import is_sensitive
from cdc.debezium.connector import (
    APICURIO_CONVERTER,
    CONFLUENT_CONVERTER,
    KINDS,
    WRITER_SCHEMA,
)
from cdc.debezium.kind import NOT_SET, NOT_SHOWN, AuditRules, SettingFinding
from cdc.debezium.names import SCHEMA, CaptureNames

_DEFAULT_REASON = "the stream would not be what the run expects"
_ALTERED = "events would lack what the run reads values by"
_AVRO = {
    "connect.meta.data": frozenset({"true"}),
    "scrub.invalid.names": frozenset({"false"}),
    "generalized.sum.type.support": frozenset({"false"}),
    "flatten.unions": frozenset({"false"}),
    "discard.type.doc.default": frozenset({"false"}),
}
"""Settings that can change a converter's Avro schemas, each with its harmless values."""
_FORMS: Mapping[str, tuple[tuple[str, str], ...]] = {
    APICURIO_CONVERTER: (
        # The default in version 2. In version 3 it is not, and runs refuse schemas in parts.
        (r"apicurio\.registry\.dereference-schema", "true"),
        (r"apicurio\.registry\.artifact\.(?:artifact-id|version|schema\.location)", ""),
        (r"apicurio\.registry\.artifact-resolver-strategy", r".*\.TopicIdStrategy"),
        (
            r"apicurio\.registry\.auto-register\.if-exists",
            # All but RETURN, which gives new data the id of the old schema.
            "RETURN_OR_UPDATE|UPDATE|FAIL|FIND_OR_CREATE_VERSION|CREATE_VERSION",
        ),
        (r"apicurio\.registry\.avro\.encoding", "BINARY"),
        (r"apicurio\.registry\.canonicalize", "false"),
        (r"apicurio\.registry\.converter\.serializer", ""),
        (r"apicurio\.registry\.id-handler", r".*\.Default4ByteIdHandler"),
        (r"apicurio\.registry\.schema-resolver", r".*\.DefaultSchemaResolver"),
        (r"apicurio\.registry\.url\.version", ""),
    ),
    CONFLUENT_CONVERTER: (
        (r"(?:key|value)\.schema\.id\.serializer", r".*\.PrefixSchemaIdSerializer"),
        (r"context\.name\.strategy", r".*\.NullContextNameStrategy"),
        (r"rule\..*", ""),
        (r"use\.latest\.with\.metadata", ""),
        (r"use\.schema\.id", "-1"),
    ),
}
"""For each converter, the settings by which messages can have another form, or another schema.

Each is a pattern of names, with a pattern of the values that are harmless.
"""
_OTHER_FORM = "messages could have another form, or the id of another schema"
_REFERENCE = re.compile(r"\$\{[^{}:]+:[^{}]*\}")


def audit(
    effective: Mapping[str, str],
    capture: CaptureNames,
    *,
    exactly_once: bool = True,
) -> list[SettingFinding]:
    """Compare a Debezium connector's effective settings with the settings that Tributary needs.

    Args:
        effective: The configuration as Connect returns it, with references in place of secrets.
        capture: The names that the connector must use.
        exactly_once: Whether ``exactly.once.support`` must be ``required``.

    Returns:
        The wrong properties, sorted by name; empty if the connector has all required settings.
    """
    kind = KINDS[capture.kind]
    required = kind.settings(capture)
    if exactly_once:
        required["exactly.once.support"] = "required"
    findings = [
        SettingFinding(
            name, effective.get(name, NOT_SET), value, kind.rules.reasons.get(name, _DEFAULT_REASON)
        )
        for name, value in required.items()
        if effective.get(name) != value
    ]
    findings += kind.missing_tables(effective)
    findings += _forbidden_properties(effective, kind.rules)
    findings += _no_heartbeat(effective, capture)
    findings += _wrong_converters(effective)
    findings += _plain_text_secrets(effective)
    return sorted(findings, key=lambda finding: finding.property)


def _forbidden_properties(
    effective: Mapping[str, str], rules: AuditRules
) -> Iterator[SettingFinding]:
    """Yield the properties that a Debezium connector's configuration has, but must not have."""
    for name, value in effective.items():
        if value in rules.harmless.get(name, ()):
            continue
        for pattern, reason in rules.forbidden:
            if re.fullmatch(pattern, name):
                shown = NOT_SHOWN if is_sensitive(name) else value
                yield SettingFinding(name, shown, NOT_SET, reason)
                break


def _no_heartbeat(effective: Mapping[str, str], capture: CaptureNames) -> Iterator[SettingFinding]:
    """Yield the settings of a Debezium connector by which it sends no heartbeat."""
    reason = "nothing would show that the connector still reads"
    name = "heartbeat.interval.ms"
    found = effective.get(name, NOT_SET)
    if not found.isdecimal() or int(found) == 0:
        yield SettingFinding(name, found, "more than 0", reason)
    name = "heartbeat.action.query"
    found = effective.get(name, NOT_SET)
    table = f"{SCHEMA}.{capture.heartbeat_table}"
    if not re.search(rf"\bINSERT INTO {re.escape(table)}(?!\w)", found):
        yield SettingFinding(name, found, f"an INSERT INTO {table}", reason)


def keeps_nulls(effective: Mapping[str, str]) -> bool:
    """Return whether a Debezium connector sends NULL as NULL even if a column has a default.

    Other connectors send the default in place of NULL.

    Args:
        effective: The configuration as Connect returns it.
    """
    return (
        effective.get("value.converter") == CONFLUENT_CONVERTER
        and effective.get("value.converter.ignore.default.for.nullables") == "true"
    )


def _wrong_converters(effective: Mapping[str, str]) -> Iterator[SettingFinding]:
    """Yield the wrong settings of a Debezium connector's converters.

    Keys and values must be Avro with the writer's schema id, in Confluent's format.
    """
    for side in ("key", "value"):
        name = f"{side}.converter"
        kind = effective.get(name, NOT_SET)
        if kind not in WRITER_SCHEMA:
            either = " or ".join(WRITER_SCHEMA)
            yield SettingFinding(name, kind, either, "the run decodes Avro by schema id")
            continue
        for key, value in WRITER_SCHEMA[kind].items():
            setting = f"{name}{key}"
            if effective.get(setting) != value:
                yield SettingFinding(
                    setting,
                    effective.get(setting, NOT_SET),
                    value,
                    "messages would not carry the id of the schema they were written with",
                )
        for key, harmless in _AVRO.items():
            setting = f"{name}.{key}"
            if (found := effective.get(setting)) is not None and found not in harmless:
                yield SettingFinding(setting, found, NOT_SET, _ALTERED)
        yield from _other_forms(effective, f"{name}.", _FORMS[kind])


def _other_forms(
    effective: Mapping[str, str], prefix: str, forms: tuple[tuple[str, str], ...]
) -> Iterator[SettingFinding]:
    """Yield the settings of a converter by which messages have another form or schema."""
    for name, found in effective.items():
        if not name.startswith(prefix):
            continue
        for pattern, harmless in forms:
            if re.fullmatch(pattern, name[len(prefix) :]) and not re.fullmatch(harmless, found):
                shown = NOT_SHOWN if is_sensitive(name) else found
                yield SettingFinding(name, shown, NOT_SET, _OTHER_FORM)


def _plain_text_secrets(effective: Mapping[str, str]) -> Iterator[SettingFinding]:
    """Yield the properties of a Debezium connector that have a secret in plain text."""
    for name, value in effective.items():
        if is_sensitive(name) and not _REFERENCE.search(value):
            yield SettingFinding(
                name,
                "(plain text, not shown)",
                "a ConfigProvider reference",
                "everyone who can read the connector could read the secret",
            )
