"""Proof that a connector captures as the handoff needs it, from its effective configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.config.values import is_sensitive
from cdc.debezium.connector import capture_settings
from cdc.debezium.names import CaptureNames

NOT_SET = "(not set)"
NOT_SHOWN = "(not shown)"


@dataclass(frozen=True)
class Finding:
    """One property that is not as it must be.

    Args:
        property: Name of the connector property.
        found: Its value, ``(not set)``, or ``(not shown)`` where that may be a secret.
        required: What it must be.
        reason: What goes wrong otherwise.
    """

    property: str
    found: str
    required: str
    reason: str

    def __str__(self) -> str:
        return f"{self.property} is {self.found}, must be {self.required}: {self.reason}"


_REASONS: Mapping[str, str] = {
    "publication.autocreate.mode": "the connector would change the publication by itself",
    "snapshot.mode": "old images would arrive behind newer changes, or changes would be skipped",
    "skipped.operations": "changes of that kind would never reach the lake",
    "skip.messages.without.change": "changes would be left out",
    "lsn.flush.mode": "the slot could move past changes that Kafka has not acknowledged",
    "offset.mismatch.strategy": "lost changes would be passed over in silence",
    "event.converting.failure.handling.mode": "values that fail to convert would become NULL",
    "event.processing.failure.handling.mode": "changes that fail would be left out",
    "errors.tolerance": "changes that fail would be left out",
    "decimal.handling.mode": "NaN and infinity would become NULL, or digits would be lost",
    "time.precision.mode": "times would be read in the wrong unit",
    "unavailable.value.placeholder": "unchanged large values could not be told from real ones",
    "tombstones.on.delete": "the stream would not be what the run expects",
    "slot.drop.on.stop": "changes during a stop would be lost",
    "provide.transaction.metadata": "only a log's handoff needs it, and cannot do without",
    "exactly.once.support": "the handoff could not tell what Kafka holds",
}
_DEFAULT_REASON = "the stream would not be what the run expects"

_FORBIDDEN: tuple[tuple[str, str], ...] = (
    (r"(?:table|schema|database)\.(?:include|exclude)\.list", "the publication is the only filter"),
    (r"column\.(?:include|exclude)\.list", "columns would be missing from the changes"),
    (r"column\.(?:mask|truncate)\..*", "values would differ from the source's"),
    (r"message\.key\.columns", "keys come from the table's replica identity"),
    (r"message\.prefix\..*", "the publication is the only filter"),
    (r"transforms(?:\..*)?", "a transform can drop, reroute or change events"),
    (r"predicates(?:\..*)?", "a predicate belongs to a transform"),
    (r"converters", "a custom converter changes values"),
    (r"post\.processors", "a post processor changes events"),
    (r"signal\.data\.collection|signal\.kafka\..*|signal\.file", "a signal can start a snapshot"),
    (r"snapshot\.(?!mode$).*", "the connector must take no snapshot"),
    (r"flush\.lsn\.source|slot\.seek\.to\.known\.offset\.on\.start", "superseded; may contradict"),
    (r"slot\.stream\.params", "it changes what the server sends"),
    (r"topic\.(?:regex|replacement|key\..*)", "it reroutes events"),
    (r"sourceinfo\.struct\.maker", "it changes the position in each event"),
    (r"table\.ignore\.builtin|guardrail\..*", "tables could be left out"),
    (r"internal\..*", "undocumented behaviour"),
    (r"replica\.identity\.autoset\.values", "the connector must not alter tables"),
    (
        r"producer\.override\.(?:acks|enable\.idempotence|transactional\.id)",
        "delivery would change",
    ),
)
_HARMLESS = {
    "transforms": frozenset({""}),
    "predicates": frozenset({""}),
    "converters": frozenset({""}),
    "post.processors": frozenset({""}),
    "flush.lsn.source": frozenset({"true"}),
    "guardrail.collections.max": frozenset({"0"}),
    "producer.override.acks": frozenset({"all", "-1"}),
    "producer.override.enable.idempotence": frozenset({"true"}),
}
_REFERENCE = re.compile(r"\$\{[^{}:]+:[^{}]*\}")


def audit(
    effective: Mapping[str, str], capture: CaptureNames, *, exactly_once: bool = True
) -> list[Finding]:
    """Compare a connector's effective configuration with what the handoff rests on.

    Args:
        effective: The configuration as Connect returns it, references unresolved.
        capture: The names that it must use.
        exactly_once: Whether exactly-once support must be required.

    Returns:
        What is not as it must be, sorted by property; empty when the capture is proven.
    """
    required = capture_settings(capture)
    if exactly_once:
        required["exactly.once.support"] = "required"
    findings = [
        Finding(name, effective.get(name, NOT_SET), value, _REASONS.get(name, _DEFAULT_REASON))
        for name, value in required.items()
        if effective.get(name) != value
    ]
    findings += _forbidden(effective)
    findings += _converters(effective)
    findings += _plain_secrets(effective)
    return sorted(findings, key=lambda finding: finding.property)


def _forbidden(effective: Mapping[str, str]) -> Iterator[Finding]:
    for name, value in effective.items():
        if value in _HARMLESS.get(name, ()):
            continue
        for pattern, reason in _FORBIDDEN:
            if re.fullmatch(pattern, name):
                shown = NOT_SHOWN if is_sensitive(name) else value
                yield Finding(name, shown, NOT_SET, reason)
                break


def _converters(effective: Mapping[str, str]) -> Iterator[Finding]:
    """Keys and values must be Avro with the writer's schema id in the Confluent wire format."""
    for side in ("key", "value"):
        name = f"{side}.converter"
        kind = effective.get(name, NOT_SET)
        if not kind.endswith(".AvroConverter"):
            yield Finding(name, kind, "an AvroConverter", "the run decodes Avro by schema id")
            continue
        if ".apicurio." not in kind:
            continue
        for key, value in (
            ("as-confluent", "true"),
            ("find-latest", "false"),
            ("use-id", "contentId"),
            ("headers.enabled", "false"),
        ):
            setting = f"{name}.apicurio.registry.{key}"
            if effective.get(setting) != value:
                yield Finding(
                    setting,
                    effective.get(setting, NOT_SET),
                    value,
                    "messages would not carry the id of the schema they were written with",
                )


def _plain_secrets(effective: Mapping[str, str]) -> Iterator[Finding]:
    for name, value in effective.items():
        if is_sensitive(name) and not _REFERENCE.search(value):
            yield Finding(
                name,
                "(plain text, not shown)",
                "a ConfigProvider reference",
                "everyone who can read the connector could read the secret",
            )
