"""`package`: packs this environment and the locked jars into one archive, for use offline.

The archive can be unpacked into any folder. The packed `bin/python` is a link to an interpreter of
the machine that made the archive. Another machine can lack this interpreter. So `bin/tributary`
looks for a Python of the same minor version.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import venv_pack

from cdc.errors import ConfigError
from cdc.runtime.jars import BUNDLED, LOCK, fetch, sha256_of
from cdc.runtime.progress import Progress, shown_as

LAUNCHER = """\
#!/bin/sh
# Starts tributary with the Python that this environment was made for, wherever that is.
here=$(dirname "$(realpath -- "$0")")
wanted={version}
found=
for python in "$TRIBUTARY_PYTHON" "$here/python" "python$wanted" python3; do
  [ -n "$python" ] || continue
  is=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || is=missing
  [ "$is" != "$wanted" ] || {{
    PYTHONPATH="$here/../lib/python$wanted/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
    export PYTHONPATH
    # Without the entry for the working folder, which may hold another copy of Tributary.
    exec "$python" -c 'import sys; sys.path[:] = filter(None, sys.path)
from operate.cli import main
main()' "$@"
  }}
  found="$found $python is $is;"
done
echo "Python $wanted is needed, by which this package was made:$found" >&2
echo "What to do: install Python $wanted, or name it: TRIBUTARY_PYTHON=/path/to/python$wanted." >&2
exit 1
"""
MANIFEST = "package.json"
_PACKED = frozenset({"bin", "lib", "lib64", "include", "share", "pyvenv.cfg"})
"""The files and folders that are packed from the top of an environment.

Other files there can be private: for example, `pip.conf` with a password, or a whole project whose
folder is also the folder of the environment.
"""
_COMPRESSION = 1  # Jars and libraries are compressed already: more takes minutes and saves little.


@dataclass(frozen=True)
class Manifest:
    """The description of a package, in the file `package.json` at the top of the archive.

    Args:
        tributary: Version of Tributary.
        python: Version of the interpreter that made the package. Every Python of the same minor
            version can run the package.
        interpreter: Path of that interpreter, to which `bin/python` is a link.
        machine: System and processor that the compiled libraries are for.
        jars: Checksum of each jar from the lock file, as a mapping from the jar's file name.
        lock: Checksum of the lock file of the jars.
    """

    tributary: str
    python: str
    interpreter: str
    machine: str
    jars: dict[str, str]
    lock: str


@dataclass(frozen=True)
class Package:
    """An archive that ``package`` has written.

    Args:
        path: The archive.
        sha256: The SHA-256 checksum of the archive.
        manifest: The description of the package.
    """

    path: Path
    sha256: str
    manifest: Manifest


def package(
    path: Path, progress: Progress, *, stores: Sequence[str], prefix: Path | None = None
) -> Package:
    """Write the archive of ``package``. An existing file is replaced when the archive is complete.

    Args:
        path: The archive, which ends in .tar.gz.
        progress: Shows that the work goes on.
        stores: The object stores whose jars are packed, too (keys of ``cdc.runtime.jars.STORES``).
        prefix: Folder of the environment; None for the environment of this process.

    Raises:
        ConfigError: The environment cannot be packed, or the file cannot be written.
        ArtifactError: The jars cannot be fetched.
    """
    bundles = ("spark", *stores)
    with shown_as(f"pack {path}", progress), tempfile.TemporaryDirectory() as made:
        env = _environment(prefix or Path(sys.prefix))
        manifest = _manifest(bundles)
        added = {
            "bin/tributary": LAUNCHER.format(version=_python_version()),
            MANIFEST: _manifest_as_text(manifest),
        }
        env.files[:] = [one for one in env.files if one.target not in added]
        for target, text in added.items():
            file = Path(made, target.replace("/", "-"))
            file.write_text(text, "utf-8")
            file.chmod(0o755 if target.startswith("bin/") else 0o644)
            env.files.append(venv_pack.File(str(file), target))
        inside = Path(
            "lib", f"python{_python_version()}", "site-packages", "cdc", "runtime", BUNDLED.name
        )
        for bundle in bundles:
            folder = fetch(bundle, LOCK[bundle])
            env.files += [
                venv_pack.File(str(jar), str(inside / folder.name / jar.name))
                for jar in sorted(folder.iterdir())
            ]
        try:
            _write_archive(env, path)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}",
                remedy="Name a file in a folder that exists, with 1 GiB of free space.",
                field=str(path),
            ) from error
    return Package(path, sha256_of(path), manifest)


def _environment(prefix: Path) -> Any:
    """Return a virtual environment to pack, with only its standard folders, such as ``bin``.

    Files beside these folders are left out, since they could contain passwords.

    Raises:
        ConfigError: The environment cannot be packed.
    """
    try:
        env = venv_pack.Env(str(prefix))
    except venv_pack.VenvPackException as error:
        raise ConfigError(
            f"{prefix} cannot be packed: {' '.join(str(error).split())}",
            remedy="Install Tributary into a virtual environment of its own, not as editable:"
            " `python3 -m venv env && env/bin/pip install .`; then run that `tributary`.",
        ) from error
    env.files[:] = [one for one in env.files if Path(one.target).parts[0] in _PACKED]
    return env


def _write_archive(env: Any, path: Path) -> None:
    """Write an environment into the archive of ``package``, in one step."""
    part = path.with_name(f".{path.name}.part")
    try:
        env.pack(str(part), format="tar.gz", force=True, compress_level=_COMPRESSION)
        part.chmod(0o644)  # by default only its owner can read it, and it holds no secret
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _manifest(bundles: tuple[str, ...]) -> Manifest:
    """Return the manifest of the archive that ``package`` writes."""
    return Manifest(
        tributary=version("tributary-cdc"),
        python=platform.python_version(),
        interpreter=str(Path(sys.executable).resolve()),
        machine=f"{platform.system()} {platform.machine()}",
        jars={jar.filename: jar.sha256 for name in bundles for jar in LOCK[name]},
        lock=sha256_of(BUNDLED.with_name("jars.lock")),
    )


def _manifest_as_text(manifest: Manifest) -> str:
    """Return the text of the manifest in the archive of ``package``."""
    return json.dumps(asdict(manifest), indent=2) + "\n"


def _python_version() -> str:
    """Return this Python's major and minor version for the package, as in ``3.12``."""
    return "{}.{}".format(*sys.version_info)
