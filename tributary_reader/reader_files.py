"""The files by which readers say what they have read: one small JSON file per reader of a table.

The files are in the folder ``_readers`` of the table's folder, so a reader needs no access to the
state store. Any program may write such a file; docs/readers_python.md has the format.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from cdc.lake.instants import time_of
from tributary_reader.errors import ReadError
from tributary_reader.storage import Storage

FOLDER = "_readers"
"""Name of the folder with the files of a table's readers."""
MOST_READERS = 100
"""Maximum number of readers of a table whose files are read."""
READER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of the names of readers. A name is a part of a path and a label of metrics."""

_END = ".json"


def _real_time(instant: str) -> str:
    time_of(instant)
    return instant


class ReaderFile(BaseModel):
    """What a reader's file says. Keys that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True)

    instant: Annotated[str, Field(pattern=r"^[0-9]{17}$"), AfterValidator(_real_time)]
    """Hudi's instant of the newest commit that the reader has read."""
    attempt: str | None = None
    """UUID of the attempt that wrote the generation that was read. If None, the attempt that has
    the commit is meant."""
    recorded_at: AwareDatetime | None = None
    """When the reader recorded the instant; None if the file does not say."""
    format: Literal[1] = 1
    """Version of the file's format."""


def checked_name(name: str) -> str:
    """Return a reader's name unchanged if it is valid.

    Raises:
        ReadError: The name is not valid.
    """
    if re.fullmatch(READER_NAME, name) is None:
        raise ReadError(
            f"{name!r} is no name of a reader",
            remedy="Give a name of at most 64 letters, digits, dots, underscores and hyphens; the"
            " first one is a letter or a digit.",
        )
    return name


def names_in(storage: Storage, folder: str) -> list[str]:
    """Return the names of a table's readers, valid or not: the first MOST_READERS in sorted order.

    Args:
        storage: The file access.
        folder: The table's folder on that storage.
    """
    files = storage.names(f"{folder}/{FOLDER}")
    # A file that begins with a dot is another program's, for example a checksum of Hadoop.
    named = (one.removesuffix(_END) for one in files if one.endswith(_END) and one[0] != ".")
    return sorted(named)[:MOST_READERS]


def read_file(storage: Storage, folder: str, name: str) -> ReaderFile | None:
    """Return what a reader's file says; None if there is no such file.

    Raises:
        ReadError: The name is not valid, or the file cannot be read or is no reader's file.
    """
    path = f"{folder}/{FOLDER}/{checked_name(name)}{_END}"
    try:
        text = storage.text(path)
    except OSError as error:
        raise ReadError(
            f"{path} cannot be read: {error.strerror or error}",
            remedy="Give this user the right to read it. Then read again.",
            path=path,
        ) from error
    if text is None:
        return None
    try:
        return ReaderFile.model_validate_json(text)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = f"{place}: {first['msg']}" if place else first["msg"]
        raise ReadError(
            f"{path} is not the file of a reader: {reason}",
            remedy="Let the reader write it again; docs/readers_python.md has its format.",
            path=path,
        ) from None


def write_file(storage: Storage, folder: str, name: str, said: ReaderFile) -> None:
    """Write a reader's file; an earlier file of the reader is replaced.

    Raises:
        ReadError: The name is not valid, or the file cannot be written through Arrow.
        LakeError: The file cannot be written on the local disk.
    """
    path = f"{folder}/{FOLDER}", f"{checked_name(name)}{_END}"
    storage.write(*path, said.model_dump_json(indent=2))


def remove_file(storage: Storage, folder: str, name: str) -> bool:
    """Remove a reader's file; return whether there was one."""
    return storage.remove(f"{folder}/{FOLDER}/{checked_name(name)}{_END}")
