"""Fetches the pinned releases of the stack's Java servers once, and unpacks them in the cache."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cdc.runtime.jars import Artifact, Report, fetch, read_lock
from cdc.runtime.java import JavaInstallation, find_java

LOCK = read_lock(Path(__file__).with_name("artifacts.lock"))
"""The pinned files of the stack's Java servers, by the name of their bundle, such as ``kafka``."""

CONVERTER_CLASS = "io.apicurio.registry.utils.converter.AvroConverter"
_CONVERTER_SERVICE = "META-INF/services/org.apache.kafka.connect.storage.Converter"


@dataclass(frozen=True)
class Software:
    """The cache's folders with the software of the stack's Java servers.

    Args:
        java: The Java that runs the software.
        kafka: Folder of Kafka's and Connect's jars.
        connectors: The folder of Debezium's connector, by kind of source. Each folder is an entry
            of ``plugin.path``.
        converter: Folder of the Avro converter. This folder, too, is an entry of ``plugin.path``.
        registry: Folder of the schema registry.
    """

    java: JavaInstallation
    kafka: Path
    connectors: Mapping[str, Path]
    converter: Path
    registry: Path


def version_of(bundle: str, name: str) -> str:
    """Return the pinned version of an artifact in a bundle of the stack.

    Args:
        bundle: The bundle, for example ``kafka``.
        name: The artifact's name, for example ``kafka-clients``.
    """
    return next(a.revision for a in LOCK[bundle] if a.name == name)


def fetch_software(
    kinds: Iterable[str], cache: Path | None = None, report: Report | None = None
) -> Software:
    """Return the folders of the stack's software; fetch what the cache lacks.

    Args:
        kinds: Kinds of source whose connectors are fetched.
        cache: Cache folder; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        JavaError: There is no Java 17.
        ArtifactError: An artifact cannot be fetched or verified.
    """
    java = find_java()
    connectors = {kind: f"debezium-{kind}" for kind in kinds}
    bundles = ("kafka", "registry", "converter", *connectors.values())
    prepare = dict.fromkeys(("registry", *connectors.values()), unpack)
    prepare["converter"] = _make_converter_plugin

    def one(bundle: str) -> Path:
        return fetch(bundle, LOCK[bundle], cache=cache, report=report, prepare=prepare.get(bundle))

    with ThreadPoolExecutor(len(bundles)) as pool:
        folders = dict(zip(bundles, pool.map(one, bundles), strict=True))
    return Software(
        java,
        kafka=folders["kafka"],
        connectors={kind: folders[bundle] for kind, bundle in connectors.items()},
        converter=folders["converter"],
        registry=folders["registry"],
    )


def artifacts(bundle: str) -> tuple[Artifact, ...]:
    """Return all pinned files of a bundle of the stack."""
    return LOCK[bundle]


def unpack(folder: Path) -> None:
    """Unpack each archive in a folder of the stack's software; then remove the archive."""
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()


def _make_converter_plugin(folder: Path) -> None:
    """Turn the converter's jars into a plugin of the stack's Kafka Connect.

    The converter's jars have no entry in ``META-INF/services``. Without this entry, Connect scans
    every class of every plugin at its start. That takes 16 s and 630 MB. With the entry, the start
    takes 3 s and 170 MB. So a jar with the entry is added.
    """
    plugin = folder / "apicurio-avro-converter"
    plugin.mkdir()
    for jar in folder.glob("*.jar"):
        jar.rename(plugin / jar.name)
    with zipfile.ZipFile(plugin / "tributary-converter-services.jar", "w") as services:
        services.writestr(_CONVERTER_SERVICE, CONVERTER_CLASS + "\n")
