"""The base class of all errors of this project, and the errors of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.redaction import redact, redact_own

if TYPE_CHECKING:
    from typing_extensions import Self


class TributaryError(Exception):
    """An error with a message about the failure and a remedy for the operator.

    Args:
        message: What happened, naming the table, topic, partition, offset or field.
        remedy: What the operator can do next, as an instruction.
        **context: The names in the message as values (``table=``, ``topic=``, ``partition=``,
            ``offset=``, ``field=``), for ``--output json`` and for logs.

    The message often quotes a server or a driver. So every secret that this process has read is
    replaced by ``***`` in the message.

    The remedy and the context do not quote a server or a driver. A plain word in them is not
    replaced, even if it equals a secret, such as the password ``orders``: there, the word is a
    name, for example a table's. Every other secret is replaced.

    An error keeps its message, remedy and context when another process sends it, for example a
    Spark worker.
    """

    def __init__(self, message: str, *, remedy: str, **context: Any) -> None:
        self.message = _unicode(redact(message))
        self.remedy = _unicode(redact_own(remedy))
        super().__init__(self.message)
        self.context = context

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.context)

    def advising(self, more: str) -> Self:
        """Return a copy of the error with more text after its remedy."""
        return type(self)(self.message, remedy=f"{self.remedy} {more}", **self.context)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain values for JSON output and the state store."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "remedy": self.remedy,
            "context": {
                key: _unicode(redact_own(str(value))) for key, value in self.context.items()
            },
        }


def _unicode(text: str) -> str:
    """Return an error's text, with escapes in place of bytes that are not UTF-8.

    Neither JSON nor a database accepts such bytes.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _rebuild(
    kind: type[TributaryError], message: str, remedy: str, context: dict[str, Any]
) -> TributaryError:
    return kind(message, remedy=remedy, **context)


class SchemaError(TributaryError):
    """A table, column or type that cannot be represented."""


class InvalidIdentifierError(SchemaError):
    """Text that does not name a table or column."""


class UnsupportedTypeError(SchemaError):
    """A source type for which the type map has no rule."""


class WireFormatError(SchemaError):
    """Bytes that are not in the Confluent wire format."""


class AvroSchemaError(SchemaError):
    """An Avro schema that is not what a Debezium topic carries."""


class RegistryError(TributaryError):
    """The schema registry is unreachable, refuses a request, or does not know an id."""


class UnknownSchemaError(RegistryError):
    """A schema id for which the registry's answer has no usable Avro schema."""


class DdlError(SchemaError):
    """A planned statement that is not understood."""
