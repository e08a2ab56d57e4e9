"""The base class of all errors of this project, and the errors of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.redaction import redact, redact_own

if TYPE_CHECKING:
    from typing_extensions import Self


class TributaryError(Exception):
    """An error with a message, and with a remedy for the operator.

    Args:
        message: What happened, with the name of the table, topic, partition, offset or field.
        remedy: What the operator can do next, as an instruction.
        **context: The message's table, topic, partition, offset or field, for ``--output json`` and
            for logs (``table=``, ``topic=``, ``partition=``, ``offset=``, ``field=``).

    The message often quotes a server or a driver. So every secret that this process has read is
    replaced by ``***`` in the message.

    The remedy and the context do not quote a server or a driver. So in them, a secret that is a
    plain word is not replaced: if the password is ``orders``, this word in a remedy is the name of
    a table. Every other secret is replaced there, too.

    An error keeps its message, remedy and context when another process sends it, for example a
    Spark worker.
    """

    def __init__(self, message: str, *, remedy: str, **context: Any) -> None:
        self.message = _encodable_error_text(redact(message))
        self.remedy = _encodable_error_text(redact_own(remedy))
        super().__init__(self.message)
        self.context = context

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled_error, (type(self), self.message, self.remedy, self.context)

    def advising(self, more: str) -> Self:
        """Return a copy of the error, with ``more`` appended to its remedy."""
        return type(self)(self.message, remedy=f"{self.remedy} {more}", **self.context)

    def naming(self, **context: Any) -> Self:
        """Return a copy of the error, with more context."""
        return type(self)(self.message, remedy=self.remedy, **{**self.context, **context})

    def to_dict(self) -> dict[str, Any]:
        """Return the error as a JSON object, for JSON output and for the state store."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "remedy": self.remedy,
            "context": {
                key: _encodable_error_text(redact_own(str(value)))
                for key, value in self.context.items()
            },
        }


def _encodable_error_text(text: str) -> str:
    """Return a text of a `TributaryError`, with escapes for characters that UTF-8 cannot encode.

    Neither JSON nor a database accepts such characters.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _unpickled_error(
    kind: type[TributaryError], message: str, remedy: str, context: dict[str, Any]
) -> TributaryError:
    """Return a `TributaryError` from its parts, as ``pickle`` and ``copy`` rebuild it."""
    return kind(message, remedy=remedy, **context)


class SchemaError(TributaryError):
    """A table, a column or a type cannot be represented."""


class InvalidIdentifierError(SchemaError):
    """A string does not name a table or a column."""


class UnsupportedTypeError(SchemaError):
    """A source type has no rule in the type map, or a setting does not fit the type."""


class WireFormatError(SchemaError):
    """Bytes are not in the Confluent wire format."""


class AvroSchemaError(SchemaError):
    """An Avro schema is not one that a Debezium topic has."""


class RegistryError(TributaryError):
    """The schema registry is unreachable, refuses a request, or does not know an id."""


class UnknownSchemaError(RegistryError):
    """The registry answers, but has no usable Avro schema for a schema id."""


class DdlError(SchemaError):
    """A planned DDL statement is refused, for example since its effect is unknown."""
