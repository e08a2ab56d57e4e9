"""The codec of all durable documents: lake commits, the pointer, the state store's rows.

A document is a frozen dataclass. The codec accepts exactly the keys of this version, each with a
value of the key's type. Its error names an unknown key, a missing key or another format version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError

from schemas.errors import TributaryError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic_core import CoreSchema, ErrorDetails

    Document = TypeVar("Document", bound=DataclassInstance)
else:
    Document = TypeVar("Document")

NOT_STORED: Mapping[str, bool] = {"not_stored": True}
"""Metadata of a field that is not stored in the document. After a read, the field has its default.
"""


class Part:
    """Base of the frozen dataclasses that are stored documents, or parts of such documents.

    Every field is a key of the document, unless its metadata is `NOT_STORED`. A field's default
    applies only to new values in code: a stored document without the key is refused.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return pydantic's schema of the fields, changed so that every key is required."""
        schema: Any = handler.resolve_ref_schema(handler(source))
        outside = {one.name for one in fields(source) if one.metadata.get("not_stored")}
        for one in schema["schema"]["fields"]:
            if one["name"] in outside:
                one.update(init=False, serialization_exclude=True)
            elif one["schema"]["type"] == "default":
                one["schema"] = one["schema"]["schema"]
        return schema  # type: ignore[no-any-return]


class Codec(Generic[Document]):
    """Writes and reads one kind of stored document.

    Args:
        kind: The document's dataclass. The default of its field ``format`` is the version of the
            document's format.
        error: Makes the error for JSON that is not such a document.
        remedy: The remedy of this error.
    """

    def __init__(
        self, kind: type[Document], *, error: Callable[..., TributaryError], remedy: str
    ) -> None:
        self._adapter = TypeAdapter(kind)
        formats = [one.default for one in fields(kind) if one.name == "format"]
        if not formats:
            raise TypeError(f"{kind.__name__} names no version of its format")
        self._format = formats[0]
        self._error = error
        self._remedy = remedy

    def write(self, document: Document, *, indent: int | None = None) -> str:
        """Return the stored document as JSON in ASCII: on one line, or indented by ``indent``.

        Raises:
            pydantic_core.PydanticSerializationError: A value is not of its field's type.
        """
        text = self._adapter.dump_json(document, indent=indent, ensure_ascii=True, warnings="error")
        return text.decode()

    def read(self, text: str | bytes, name: str, **context: object) -> Document:
        """Read a stored document that :meth:`write` has written.

        Args:
            text: The JSON.
            name: The name of the document in errors.
            context: The names in the error's message, by kind, such as ``table``; see
                `TributaryError`.

        Raises:
            TributaryError: The JSON is not such a document, or has another format version.
        """
        try:
            return self._adapter.validate_json(text)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
            reason = self._other_format(text, first) or _unreadable_reason(first)
            raise self._error(f"{name} {reason}", remedy=self._remedy, **context) from problem

    def _other_format(self, text: str | bytes, problem: ErrorDetails) -> str | None:
        """Return an error message if a document's format version is not the codec's; else None.

        Every other problem of such a document is a consequence of the wrong version.
        """
        document = None if problem["type"] == "json_invalid" else json.loads(text)
        if not isinstance(document, dict) or "format" not in document:
            return None
        found = document["format"]
        if found == self._format:
            return None
        return f"has format {found!r}; this version reads format {self._format!r} only"


def _unreadable_reason(problem: ErrorDetails) -> str:
    """Return why a stored document cannot be read, to follow the document's name in an error."""
    what = problem["msg"].removeprefix("Value error, ").removeprefix("Invalid JSON: ")
    place = _path_in_document(problem["loc"])
    if problem["type"] == "json_invalid":
        return f"is not JSON: {what}"
    if problem["type"] == "missing":
        return f"lacks the key {place}"
    if problem["type"] == "unexpected_keyword_argument":
        return f"has the key {place}, which this version does not know"
    return f"is not valid: {place}: {what}" if place else f"is not valid: {what}"


def _path_in_document(place: tuple[int | str, ...]) -> str:
    """Return the path of a value in a stored document, such as ``handoff.columns[0].name``."""
    path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in place)
    return path.removeprefix(".")
