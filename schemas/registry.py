"""Reads Avro schemas by id from a schema registry with the Confluent API."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import httpx
import stamina

from schemas.errors import RegistryError, UnknownSchemaError

_RETRY = stamina.RetryingCaller(attempts=5, timeout=60.0)
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class SchemaRegistry(Protocol):
    """Returns the Avro schema with which a record was written, by the schema id in the record."""

    def schema(self, schema_id: int) -> str:
        """Return the Avro schema with this id, as JSON.

        Raises:
            UnknownSchemaError: The registry has no Avro schema with this id.
            RegistryError: The registry is unreachable, or refuses the request.
        """
        ...


@dataclass(frozen=True)
class RegistryEndpoint:
    """The address of a schema registry, and the login to it.

    Args:
        url: Root of the Confluent-compatible API, for example
            ``http://registry:8080/apis/ccompat/v7``.
        username: User for basic authentication.
        password: The user's password itself, not a reference to it. The password is never printed.
        ca_file: PEM file of certificate authorities to trust instead of the system's.
        timeout_s: Maximum duration of one request, in seconds.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject in the schema registry.

    Args:
        id: The schema id that records carry.
        version: The version's number in the subject.
        text: The Avro schema as JSON.
    """

    id: int
    version: int
    text: str = field(repr=False)


class ConfluentRegistry:
    """A registry with the Confluent REST API (Confluent, Apicurio, Karapace, Redpanda).

    Each schema is fetched once and then cached. Safe to share among threads.

    Args:
        endpoint: Address and login of the registry.
    """

    def __init__(self, endpoint: RegistryEndpoint) -> None:
        self._endpoint = endpoint
        self._cache: dict[int, str] = {}
        self._lock = threading.Lock()
        auth = None
        if endpoint.username is not None:
            auth = httpx.BasicAuth(endpoint.username, endpoint.password or "")
        verify: ssl.SSLContext | bool = True
        if endpoint.ca_file is not None:
            verify = ssl.create_default_context(cafile=endpoint.ca_file)
        self._http = httpx.Client(
            base_url=endpoint.url.rstrip("/") + "/",
            auth=auth,
            verify=verify,
            timeout=endpoint.timeout_s,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )

    def schema(self, schema_id: int) -> str:
        """Return the Avro schema with this id, as JSON.

        Raises:
            UnknownSchemaError: The registry does not know the id, the schema is not Avro, or the
                schema refers to other schemas.
            RegistryError: The registry is unreachable, or refuses the request.
        """
        with self._lock:
            known = self._cache.get(schema_id)
        if known is not None:
            return known
        found = self._fetch(schema_id)
        with self._lock:
            self._cache[schema_id] = found
        return found

    def newest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if the registry has none for the subject.

        Raises:
            RegistryError: The registry is unreachable or refuses the request, or its answer is not
                understood.
        """
        answer = self._get_with_retries(f"subjects/{quote(subject, safe='')}/versions/latest")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code != httpx.codes.OK:
            raise self._refused(answer, f"read subject {subject}")
        try:
            found = answer.json()
            return RegisteredSchema(int(found["id"]), int(found["version"]), str(found["schema"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(answer, f"read subject {subject}") from error

    def ping(self) -> None:
        """Check that the schema registry answers a query for its subjects.

        Raises:
            RegistryError: The registry does not answer or refuses the request, or another service
                answers at its address.
        """
        answer = self._get_with_retries("subjects")
        if answer.status_code != httpx.codes.OK:
            raise self._refused(answer, "list subjects")

    def close(self) -> None:
        """Close the connections to the schema registry."""
        self._http.close()

    def _fetch(self, schema_id: int) -> str:
        answer = self._get_with_retries(f"schemas/ids/{schema_id}")
        if answer.status_code == httpx.codes.NOT_FOUND and _is_registry_answer(answer):
            raise UnknownSchemaError(
                f"registry {self._endpoint.url} does not know schema id {schema_id}",
                remedy="Check that the registry is the one the connector's converter writes to,"
                " and that its store survived its last restart; ids must never be reused.",
                schema_id=schema_id,
            )
        if answer.status_code != httpx.codes.OK:
            raise self._refused(answer, f"read schema id {schema_id}", schema_id=schema_id)
        try:
            document = answer.json()
            text = document["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(
                answer, f"read schema id {schema_id}", schema_id=schema_id
            ) from error
        kind = document.get("schemaType", "AVRO")
        if kind != "AVRO" or document.get("references"):
            raise UnknownSchemaError(
                f"schema id {schema_id} is {kind}"
                + (" with references" if document.get("references") else ""),
                remedy="Use an Avro converter that registers whole schemas (for Apicurio:"
                " apicurio.registry.dereference-schema = true in the connector's converters). What"
                " was written before needs a copy: run `tributary bootstrap` for the table.",
                schema_id=schema_id,
            )
        return str(text)

    def _get_with_retries(self, path: str) -> httpx.Response:
        try:
            return _RETRY((httpx.TransportError, _TransientAnswerError), self._get_once, path)
        except _TransientAnswerError as error:
            return error.answer
        except httpx.TransportError as error:
            raise RegistryError(
                f"registry {self._endpoint.url} is unreachable: {error or type(error).__name__}",
                remedy="Check kafka.registry.url and that the registry runs.",
            ) from error

    def _get_once(self, path: str) -> httpx.Response:
        answer = self._http.get(path)
        if answer.status_code in _RETRIED_STATUS:
            raise _TransientAnswerError(answer)
        return answer

    def _refused(self, answer: httpx.Response, what: str, **context: Any) -> RegistryError:
        status = answer.status_code
        remedy = "Check that kafka.registry.url is the root of a Confluent-compatible API."
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            remedy = "Check kafka.registry.username and password, and that user's permissions."
        return RegistryError(
            f"registry {self._endpoint.url} answered HTTP {status} when asked to {what}:"
            f" {answer.text[:200].strip()}",
            remedy=remedy,
            status=status,
            **context,
        )


def _is_registry_answer(answer: httpx.Response) -> bool:
    """Whether a 404 comes from a schema registry, and not from a proxy or another service."""
    try:
        return "error_code" in answer.json()
    except (ValueError, TypeError):
        return False


class _TransientAnswerError(Exception):
    """The schema registry answered with a transient error, so the request is repeated."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer
