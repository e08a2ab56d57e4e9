"""Reads ``tributary.yaml``. One read finds all problems, and names the path of each wrong key."""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl

import yaml
from pydantic import BaseModel, Discriminator, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cdc.config.root import Config
from cdc.config.secrets import SecretRef, expand, fold, is_only_references, is_reference
from cdc.config.source import kind_of
from cdc.config.value_types import RawOptions, Section, Verbatim, is_sensitive
from cdc.errors import ConfigError, SecretError

VARIABLE = "TRIBUTARY_CONFIG"
DEFAULT_PATH = Path("tributary.yaml")

_MERGE = "tag:yaml.org,2002:merge"
_Path = tuple[str | int, ...]
_PLAIN_TEXT = (
    "is a secret in plain text; write a reference: ${NAME} for an environment variable, "
    "or ${file:/path}"
)


@dataclass(frozen=True)
class ConfigProblem:
    """One problem in ``tributary.yaml``, and the path of its key."""

    path: _Path
    reason: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.reason}" if self.path else self.reason


def load(path: Path | None = None) -> Config:
    """Read the configuration in ``tributary.yaml``.

    Args:
        path: The file. If it is None, the environment variable ``TRIBUTARY_CONFIG`` names the file;
            if that variable is not set, the file is ``tributary.yaml`` in the working directory.

    Raises:
        ConfigError: The file is missing or wrong. The error's ``field`` is the path of the first
            wrong key, or the file. The message lists all wrong keys.
    """
    file = path or Path(os.environ.get(VARIABLE) or DEFAULT_PATH)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"configuration file {file} does not exist",
            remedy=f"Write one with `tributary init`, or name yours with --config or {VARIABLE}.",
            field=str(file),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"configuration file {file} cannot be read: {reason}",
            remedy="Check the file and its permissions.",
            field=str(file),
        ) from None
    return parse(text, name=str(file), base=file.absolute().parent)


def parse(text: str, *, name: str = "tributary.yaml", base: Path | None = None) -> Config:
    """Read the configuration from a string in YAML.

    Args:
        text: The YAML.
        name: The file name that errors show.
        base: Folder that relative paths start from; the working directory by default.

    Raises:
        ConfigError: As for ``load``.
    """
    try:
        return _parse_document(text, name, base or Path.cwd())
    except RecursionError:
        raise _config_error(
            name, [ConfigProblem((), "not valid YAML: nested too deeply")]
        ) from None


def dotted(path: _Path) -> str:
    """Return the path of a configuration key for messages, for example ``tables."a b".columns[0]``.

    A key is quoted if it has other characters than letters, digits, ``_`` and ``-``.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if re.fullmatch(r"[\w-]+", part) else f'"{part}"'
            text += f".{quoted}" if text else quoted
    return text


def _parse_document(text: str, name: str, base: Path) -> Config:
    """Read the configuration from a string in YAML; deep nesting raises a RecursionError."""
    try:
        # _StrictLoader is a SafeLoader that also refuses a key given twice or a key that is not
        # text.
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        # The library's own text quotes the line, which could have a secret in it.
        raise _config_error(
            name, [ConfigProblem((), f"not valid YAML: {error.problem}{where}")]
        ) from None
    except yaml.YAMLError:
        raise _config_error(
            name, [ConfigProblem((), "not valid YAML: unreadable characters")]
        ) from None
    if not isinstance(document, dict):
        raise _config_error(
            name, [ConfigProblem((), "must be a map of sections, as `init` writes it")]
        )
    problems: list[ConfigProblem] = []
    expanded = _expand_references(document, Config, (), problems)
    known = {problem.path for problem in problems}
    try:
        config = Config.model_validate(expanded, context={"base": base})
    except ValidationError as error:
        more = _problems_in(error, expanded)
    else:
        more = (ConfigProblem(path, reason) for path, reason in _section_conflicts(config, ()))
    problems += [found for found in more if not _is_below_known(found.path, known)]
    if problems:
        # A reason can quote a value, and the value of any key can be a secret. The reference in its
        # place hides the secret, and is also what the reader finds in the file.
        raise _config_error(name, [replace(it, reason=fold(it.reason, text)) for it in problems])
    return config


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a duplicate key and a key that is not a string."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
            if not isinstance(self.construct_object(key_node), str):
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"key {key_node.value} is not text; put it in quotes",
                    key_node.start_mark,
                )
        return super().construct_mapping(node, deep=deep)


def _config_error(name: str, problems: list[ConfigProblem]) -> ConfigError:
    """Return the error with all problems of a configuration file."""
    if len(problems) == 1:
        message = f"{name}: {problems[0]}"
    else:
        lines = "".join(f"\n  {problem}" for problem in problems)
        message = f"{name} has {len(problems)} problems:{lines}"
    return ConfigError(
        message,
        remedy=f"Correct {name}; `tributary config schema` prints all allowed keys.",
        field=dotted(problems[0].path) or name,
    )


def _section_conflicts(section: BaseModel, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Yield settings that cannot work together, in a configuration section and its subsections.

    Args:
        section: The section.
        path: The section's path in the configuration.

    Yields:
        The path of a setting, and its problem.
    """
    if isinstance(section, Config) or (
        # A section of table settings need not be complete; Config checks the combined settings.
        hasattr(section, "conflicts") and path[:1] not in (("tables",), ("defaults",))
    ):
        yield from ((path + below, reason) for below, reason in section.conflicts())
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _section_conflicts(value, (*path, name))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, Section):
                    yield from _section_conflicts(item, (*path, name, key))


def _problems_in(error: ValidationError, document: Any) -> Iterator[ConfigProblem]:
    """Convert pydantic's errors to problems of the configuration, each with its key's path."""
    for details in error.errors(include_url=False, include_input=False):
        if details["type"] == "default_factory_not_called":
            continue  # a consequence of another error, which is reported
        path, section = _place_of_key(details["loc"], document)
        if details["type"] == "source_kind" and isinstance(_value_at(document, path), dict):
            path = (*path, "kind")
        yield ConfigProblem(path, _reason_for_key(details, path, section))


def _place_of_key(location: _Path, document: Any) -> tuple[_Path, Any]:
    """Return a wrong configuration key's path in the file, and the type of its section.

    Args:
        location: The location in pydantic's error. A location also has names of unions' members,
            and these names are not in the file.
        document: The whole file, as YAML's loader returned it.
    """
    path: _Path = ()
    section: Any = None
    annotation: Any = Config
    for part in location:
        if part == "[key]" or part in _variants_by_tag(annotation):
            continue  # pydantic adds it: the mark of a key's error, or the member of a union
        path = (*path, part)
        section = _unwrap_type(annotation, _value_at(document, path[:-1]))[0]
        annotation = _annotation_of_key(section, part)
    return path, section


def _value_at(document: Any, path: _Path) -> Any:
    """Return the value at a path of the configuration file; None if the file lacks the path."""
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _reason_for_key(details: ErrorDetails, path: _Path, section: Any) -> str:
    """Describe pydantic's error about a configuration key, for a message.

    If the key is unknown, the message has the most similar allowed key, or all allowed keys.
    """
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        allowed = list(_fields_by_key(section)) if _is_section(section) else []
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1, cutoff=0.6)
        hint = (
            f"did you mean {close[0]!r}?" if close else f"the allowed keys are {', '.join(allowed)}"
        )
        return f"unknown key; {hint}"
    message = details["msg"].removeprefix("Value error, ")
    no_map = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
    if details["type"] in no_map or (details["type"] == "source_kind" and path[-1] != "kind"):
        return "must be a map of keys"
    return message[:1].lower() + message[1:]


def _expand_references(
    value: Any, annotation: Any, path: _Path, problems: list[ConfigProblem]
) -> Any:
    """Return a value of the configuration with its references replaced by their values.

    References to secrets and the references in a ``Verbatim`` setting are not replaced. Problems
    are added to ``problems``.
    """
    if annotation is None:
        return value  # below an unknown key, which is reported as a separate problem
    if isinstance(value, dict):
        result = {}
        for key, item in value.items():
            below = (*path, str(key))
            child, marks = _type_of_key(annotation, key, item)
            if RawOptions in marks and isinstance(item, dict):
                problems += _plain_text_secrets(item, below, verbatim=Verbatim in marks)
            keep = Verbatim in marks or child is SecretRef
            if keep and isinstance(item, str) and child is not SecretRef:
                problems += _url_password(item, below)
            result[key] = item if keep else _expand_references(item, child, below, problems)
        return result
    if isinstance(value, list):
        return [
            _expand_references(item, _type_of_key(annotation, at, item)[0], (*path, at), problems)
            for at, item in enumerate(value)
        ]
    if isinstance(value, str) and "${" in value:
        try:
            return expand(value, secret=is_sensitive(str(path[-1])))
        except SecretError as error:
            problems.append(ConfigProblem(path, error.message))
    return value


def _plain_text_secrets(
    options: Mapping[Any, Any], path: _Path, *, verbatim: bool
) -> Iterator[ConfigProblem]:
    """Yield a problem for each plain-text secret in configured settings of another program.

    Args:
        options: A map of settings for another program.
        path: The map's path in the configuration.
        verbatim: Whether the other program resolves the references itself. If so, a reference in
            Tributary's syntax is also a problem.
    """
    for key, value in options.items():
        if is_sensitive(str(key)) and not is_reference(str(value)):
            yield ConfigProblem((*path, str(key)), _PLAIN_TEXT)
        elif verbatim and re.search(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", str(value)):
            yield ConfigProblem(
                (*path, str(key)),
                "is sent to Kafka Connect unchanged; write the reference in Connect's form,"
                " ${env:NAME}",
            )


def _url_password(url: str, path: _Path) -> Iterator[ConfigProblem]:
    """Yield a problem if a configured URL has a password or another secret in plain text."""
    login = re.match(r"[^/]*//[^/@]*:([^@]*)@", url)
    named = parse_qsl(url.partition("?")[2])
    secrets = [value for name, value in named if is_sensitive(name)]
    if any(not is_only_references(text) for text in (*secrets, login[1] if login else "")):
        yield ConfigProblem(path, _PLAIN_TEXT)


def _type_of_key(annotation: Any, key: object, value: Any) -> tuple[Any, set[type]]:
    """Return the type of a configuration key's value, and the classes of the type's markers.

    The markers are the metadata in ``Annotated``, for example ``RawOptions``.

    Args:
        annotation: The type of the map or section that has the key.
        key: The key.
        value: The value. If its type is a tagged union, the value selects the union's member.
    """
    inner, marks = _unwrap_type(_annotation_of_key(annotation, key), value)
    if _is_section(annotation) and (field := _fields_by_key(annotation).get(str(key))) is not None:
        marks = marks | {type(mark) for mark in field.metadata}
    return inner, marks


def _annotation_of_key(annotation: Any, key: object) -> Any:
    """Return the annotation of a configuration key's value; None if the key is unknown.

    Args:
        annotation: The annotation of the section, map or list that has the key.
        key: The key, or the index in a list.
    """
    if _is_section(annotation):
        field = _fields_by_key(annotation).get(str(key))
        return None if field is None else field.annotation
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0]
    return get_args(annotation)[-1] if get_args(annotation) else None


def _unwrap_type(annotation: Any, value: Any) -> tuple[Any, set[type]]:
    """Return a configured setting's plain type, and the classes of its type's markers.

    ``Annotated`` and ``| None`` are removed. The markers are the metadata in ``Annotated``.

    If the type is a tagged union, the result has the member that the value's ``kind`` selects.
    """
    if variants := _variants_by_tag(annotation):
        kind = kind_of(value)
        return _unwrap_type(variants.get(str(kind), next(iter(variants.values()))), value)
    if get_origin(annotation) is Annotated:
        inner, marks = _unwrap_type(annotation.__origin__, value)
        return inner, marks | {type(mark) for mark in annotation.__metadata__}
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [item for item in get_args(annotation) if item is not types.NoneType]
        return _unwrap_type(rest[0], value)
    return annotation, set()


def _fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a section's fields by their keys in the file, such as ``as_`` by ``as``."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _variants_by_tag(annotation: Any) -> dict[Any, Any]:
    """Return a mapping from tags to members of a tagged union; empty for any other type."""
    marks = getattr(annotation, "__metadata__", ())
    if not any(isinstance(mark, Discriminator) for mark in marks):
        return {}
    return {
        mark.tag: member
        for member in get_args(annotation.__origin__)
        for mark in member.__metadata__
        if isinstance(mark, Tag)
    }


def _is_section(annotation: Any) -> bool:
    """Return whether an annotation in the configuration is a section with keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_below_known(path: _Path, known: set[_Path]) -> bool:
    """Return whether a configuration key has a known problem, or is inside a key with one."""
    return any(path[: len(prefix)] == prefix for prefix in known)
