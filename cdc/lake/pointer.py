"""The pointer: a small file in the table's folder that names the generation for readers to open."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from cdc.errors import LakeError, ReplacedGenerationError
from cdc.store.documents import Codec, Part

POINTER = "_current.json"
"""Name of the pointer's file."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL = re.compile(r"file:(?://(?=/)|(?=/[^/]))")


@dataclass(frozen=True)
class Published(Part):
    """A published or formerly published generation of a lake table.

    Args:
        path: Base path of the generation's Hudi table.
        generation: The generation's number, from 1.
        attempt: UUID of the bootstrap attempt that wrote the generation.
        published_at: Time of publication, aware UTC; by default the time now.
        continues: UUID of the attempt that wrote the previous generation. None if a reader of the
            previous generation's changes cannot continue with this generation's changes. A reader
            can continue on three conditions: runs applied changes to the previous generation until
            this generation replaced it; no loss was found between the two copies; both generations
            have the same settings for rows. On these conditions, each difference between the two
            generations is an event in the topic, unless the previous generation had wrong rows.
    """

    path: str
    generation: int
    attempt: str
    published_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    continues: str | None = None


@dataclass(frozen=True)
class Pointer(Published):
    """The published generation of a lake table, and the generations that were published before.

    Args:
        former: The generations that were published before, newest first. A reader can still have
            one of them open.
        format: Version of this document.
    """

    former: tuple[Published, ...] = ()
    format: Literal[1] = 1

    @classmethod
    def of(cls, current: Published, former: tuple[Published, ...] = ()) -> Pointer:
        """Return the pointer with ``current`` as the published generation."""
        return cls(
            current.path,
            current.generation,
            current.attempt,
            current.published_at,
            current.continues,
            former=former,
        )

    @property
    def current(self) -> Published:
        """The generation that readers should open."""
        return Published(
            self.path, self.generation, self.attempt, self.published_at, self.continues
        )

    def continues_from(self, attempt: str) -> bool:
        """Whether a reader of the generation of ``attempt`` can continue with the current one.

        The reader can continue if, for each later generation up to the current one,
        `Published.continues` is the attempt that wrote the generation right before.
        """
        published = {one.attempt: one for one in (self.current, *self.former)}
        at: Published | None = self.current
        while at is not None and at.attempt != attempt:
            if at.continues == attempt:
                return True
            at = published.pop(at.continues, None) if at.continues is not None else None
        return at is not None

    def to_json(self) -> str:
        """Return the pointer as the JSON of its file."""
        return _CODEC.write(self, indent=2)

    @classmethod
    def from_json(cls, text: str | bytes, *, folder: str) -> Pointer:
        """Parse the JSON that :meth:`to_json` wrote.

        Args:
            text: The content of the pointer's file.
            folder: The table's folder, for the error message.

        Raises:
            LakeError: The content is not a pointer, or its format version is unknown.
        """
        return _CODEC.read(text, f"{folder}/{POINTER}", path=folder)


_CODEC = Codec(
    Pointer,
    error=LakeError,
    remedy="Another program or another version of Tributary wrote it: remove the file, or restore"
    " its former content. The next `tributary resync` of the table writes it again.",
)


def moved(pointer: Pointer | None, to: Published) -> Pointer:
    """Return the pointer that publishes a generation of a lake table.

    Args:
        pointer: The current pointer; None if no generation is published.
        to: The generation to publish. If it is the current generation already, the result is
            ``pointer``.

    Raises:
        ReplacedGenerationError: The generation ``to`` was published earlier, and another generation
            has replaced it since. If ``to`` were published again, readers would see older rows.
    """
    if pointer is None:
        return Pointer.of(to)
    if pointer.current.attempt == to.attempt:
        return pointer
    if any(one.attempt == to.attempt for one in pointer.former):
        raise ReplacedGenerationError(
            f"generation {to.generation}, attempt {to.attempt}, was replaced by generation"
            f" {pointer.generation}, attempt {pointer.attempt}, published at"
            f" {pointer.published_at:%Y-%m-%d %H:%M:%S} UTC: readers would see an older state",
            remedy="Was the state store or the lake restored from a backup? Restore the other one"
            " from the same time; or copy the table again: `tributary bootstrap`.",
            path=to.path,
        )
    return Pointer.of(to, (pointer.current, *pointer.former))


def local_folder(url: str) -> Path | None:
    """Return the local folder of a lake table's URL or path; None for another file system's URL.

    The text after ``file:`` is a literal path without escapes, as in Hadoop.
    """
    if (local := _LOCAL.match(url)) is not None:
        return Path(url[local.end() :])
    return None if _SCHEME.match(url) else Path(url)


def read_local(folder: Path) -> Pointer | None:
    """Return the pointer in a lake table's local folder; None if no generation is published.

    Raises:
        LakeError: The file cannot be read.
    """
    try:
        text = (folder / POINTER).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakeError(
            f"{folder}/{POINTER} cannot be read: {error.strerror}",
            remedy="Check the permissions of the lake's folder.",
            path=str(folder),
        ) from error
    return Pointer.from_json(text, folder=str(folder))


def replace_local(folder: Path, text: str, *, name: str = POINTER) -> None:
    """Replace the pointer, or another small file, in a local folder of the lake in one step.

    If the machine loses power, the folder has the old file or the new one.

    Raises:
        LakeError: The folder cannot be written.
    """
    staged = folder / f".{name}.{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with staged.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Hadoop keeps a checksum beside each file, and would refuse a file that does not match it.
        (folder / f".{name}.crc").unlink(missing_ok=True)
        staged.replace(folder / name)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise LakeError(
            f"{folder}/{name} cannot be written: {error.strerror}",
            remedy="Check the permissions of the lake's folder, and its free space.",
            path=str(folder),
        ) from error
    finally:
        staged.unlink(missing_ok=True)
