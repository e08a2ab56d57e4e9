"""Finds files with secrets and certificates that have changed since a process read them.

Each client of Kafka, Kafka Connect, the schema registry or the state store reads its files once,
when the client is opened. After a rotation, a long-running process still has the former contents.
The process's open connections last for a while, so a changed file alone is no fault.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from cdc.config.secrets import SecretRef, files_in

_log = logging.getLogger(__name__)


class SecretFiles:
    """The files with secrets and certificates that a process has read.

    Safe to share among threads.

    Args:
        paths: The files.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._read = {path: _digest_of_secret_file(path) for path in paths}
        self.changed: tuple[str, ...] = ()
        """The files whose contents, at the last look, were not those that the process had read."""

    def look(self) -> None:
        """Set ``changed`` to the files whose contents have changed since the process read them.

        Processes call this after a failure that a changed secret can explain. A file that cannot be
        read does not count as changed.
        """
        now = {path: _digest_of_secret_file(path) for path in self._read}
        found = [path for path, digest in now.items() if digest not in (None, self._read[path])]
        if found and not self.changed:
            _log.warning("%s changed since this process has read it", found[0])
        self.changed = tuple(map(str, found))


def files_of(*sections: BaseModel) -> list[Path]:
    """Return the files with secrets and certificates that sections of the configuration name."""
    return sorted({path for section in sections for path in _files_of_section(section)})


def _files_of_section(section: BaseModel) -> Iterator[Path]:
    """Yield the files with secrets and certificates that a section of the configuration names."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _files_of_section(value)
        elif isinstance(value, SecretRef) and value.kind == "file":
            yield Path(value.name)
        elif isinstance(value, Path) and name.endswith("_file"):
            yield value
        elif isinstance(value, str):
            yield from files_in(value)


def _digest_of_secret_file(path: Path) -> bytes | None:
    """Return a digest of a configured secret's file; None if the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
