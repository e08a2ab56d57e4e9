"""The reader's access to files, on the local disk or on any file system of Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cdc.lake.pointer import local_folder, replace_local
from tributary_reader.errors import ReadError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True)
class Entry:
    """A file in a listing of the reader's storage.

    Args:
        path: The file's path below the listed folder, with ``/`` between names.
        size: The file's size in bytes.
    """

    path: str
    size: int


class Storage(Protocol):
    """The access to files that the reader needs."""

    def resolve(self, url: str) -> str:
        """Return the path that a URL names on the reader's file system."""

    def text(self, path: str) -> bytes | None:
        """Return the content of a file for the reader; None if there is no such file."""

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's entries for the reader; empty without such a folder."""

    def below(self, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder for the reader; nothing if there is no such folder."""

    def write(self, folder: str, name: str, text: str) -> None:
        """Write a small file in a folder; create a missing folder, and replace an earlier file."""

    def remove(self, path: str) -> bool:
        """Remove a file; return whether there was one."""

    def arrow(self) -> FileSystem:
        """Return the ``pyarrow.fs.FileSystem`` with which Arrow reads these files."""


class LocalStorage:
    """The reader's access to files on the local disk."""

    def resolve(self, url: str) -> str:
        """Return the absolute local path for the reader, from a ``file:`` URL or a path."""
        folder = local_folder(url)
        if folder is None:
            raise no_file_system(url)
        return str(Path(folder).absolute())

    def text(self, path: str) -> bytes | None:
        """Return the content of the reader's local file; None if there is no such file."""
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names of a local folder's entries; empty if there is no such folder."""
        try:
            return [one.name for one in Path(folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def below(self, folder: str) -> Iterator[Entry]:
        """Yield all files below the reader's local folder; nothing if there is no such folder.

        Raises:
            ReadError: The folder, or a folder or file below it, cannot be accessed.
        """
        for place, _, names in os.walk(folder, onerror=_unlisted):
            for name in names:
                file = Path(place, name)
                try:
                    size = file.stat().st_size
                except OSError as error:
                    _unlisted(error)
                else:
                    yield Entry(file.relative_to(folder).as_posix(), size)

    def write(self, folder: str, name: str, text: str) -> None:
        """Write a small file in a local folder, in one step.

        Raises:
            LakeError: The file cannot be written.
        """
        replace_local(Path(folder), text, name=name)

    def remove(self, path: str) -> bool:
        """Remove a local file; return whether there was one.

        Raises:
            ReadError: The file cannot be removed.
        """
        try:
            Path(path).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _not_written(path, error) from error
        return True

    def arrow(self) -> FileSystem:
        """Return Arrow's file system of the local disk."""
        return pyarrow_module("fs").LocalFileSystem()


_HDFS = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs"})
_AZURE = frozenset({"abfs", "abfss", "wasb", "wasbs"})


class ArrowStorage:
    """The reader's access to a file system of Arrow, for example ``S3FileSystem``.

    Args:
        filesystem: The file system.
    """

    def __init__(self, filesystem: FileSystem) -> None:
        self._files = filesystem

    def resolve(self, url: str) -> str:
        """Return the path that Arrow's file system uses for a URL.

        The path is, for example, ``bucket/key`` for S3, ``/path`` without the host for HDFS, and
        ``container/path`` for Azure.
        """
        scheme, separator, rest = url.rpartition("://")
        if not separator:
            return url.removeprefix("file:").rstrip("/")
        authority, slash, path = rest.partition("/")
        if scheme in _HDFS:
            authority = ""
        elif scheme in _AZURE:
            authority = authority.partition("@")[0]
        return f"{authority}{slash}{path}".rstrip("/")

    def text(self, path: str) -> bytes | None:
        """Return the content of a file through Arrow; None if there is no such file."""
        try:
            with self._files.open_input_stream(path) as stream:
                return bytes(stream.readall())
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's entries through Arrow; empty without such a folder."""
        selector = pyarrow_module("fs").FileSelector(folder, allow_not_found=True)
        return [one.base_name for one in self._files.get_file_info(selector)]

    def below(self, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder through Arrow; nothing if there is no such folder."""
        fs = pyarrow_module("fs")
        found = self._files.get_file_info(
            fs.FileSelector(folder, recursive=True, allow_not_found=True)
        )
        for one in found:
            if one.type == fs.FileType.File:
                yield Entry(one.path[len(folder) :].lstrip("/"), int(one.size))

    def write(self, folder: str, name: str, text: str) -> None:
        """Write a small file through Arrow: on a local disk in one step, elsewhere in place.

        In an object store, a file is visible only after its last byte is written.

        Raises:
            LakeError: The file cannot be written on a local disk.
            ReadError: The file cannot be written elsewhere.
        """
        if self._files.type_name == "local":
            replace_local(Path(folder), text, name=name)
            return
        path = f"{folder}/{name}"
        try:
            self._files.create_dir(folder, recursive=True)
            with self._files.open_output_stream(path) as stream:
                stream.write(text.encode())
        except OSError as error:
            raise _not_written(path, error) from error

    def remove(self, path: str) -> bool:
        """Remove a file through Arrow; return whether there was one.

        Raises:
            ReadError: The file cannot be removed.
        """
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _not_written(path, error) from error
        return True

    def arrow(self) -> FileSystem:
        """Return the file system that this object was created with."""
        return self._files


def _unlisted(error: OSError) -> None:
    """Raise a reader's error for a folder or file that cannot be listed.

    A folder or file that was removed meanwhile is no error.

    Raises:
        ReadError: The folder or file still exists.
    """
    if not isinstance(error, FileNotFoundError):
        raise ReadError(
            f"{error.filename} cannot be listed: {error.strerror}",
            remedy="Give this user the right to read it, or mount it again. Then read again.",
            path=str(error.filename),
        ) from error


def _not_written(path: str, error: OSError) -> ReadError:
    return ReadError(
        f"{path} cannot be written or removed: {error.strerror or error}",
        remedy="Give this user the right to write in the table's folder.",
        path=path,
    )


def storage_of(filesystem: FileSystem | None) -> Storage:
    """Return a reader's access to a file system of Arrow, or to the local disk if None is given."""
    return LocalStorage() if filesystem is None else ArrowStorage(filesystem)


def no_file_system(url: str) -> ReadError:
    """Return the error for a URL that is not on the local disk, if no file system was given."""
    return ReadError(
        f"{url} is not on this machine",
        remedy="Give the file system that has it: filesystem=, a file system of pyarrow.",
        path=url,
    )


def pyarrow_module(name: str = "") -> Any:
    """Import and return pyarrow, or one of its modules.

    Files on the local disk can be listed without pyarrow.

    Raises:
        ReadError: pyarrow is not installed.
    """
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{name}" if name else "pyarrow")
    except ModuleNotFoundError as error:
        raise ReadError(
            "pyarrow is not installed",
            remedy="Install the extra: `pip install 'tributary-cdc[reader]'`.",
        ) from error


def properties(text: bytes) -> Mapping[str, str]:
    """Return the settings in a properties file of Hudi; ``text`` is the file's content."""
    lines = (line.strip() for line in text.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}
