"""Finds a headless Chromium on the PATH, or in Debian's package."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from cdc.runtime.jars import Report
from stack.debian import Package, unpack
from stack.errors import UnavailableError

PACKAGE = Package("chromium-headless-shell", also=("fonts-dejavu-core",))
"""Debian's packages: a browser that needs no screen, and a font for machines that have no font."""
_PROGRAM = "usr/lib/chromium/chromium-headless-shell"


@dataclass(frozen=True)
class Browser:
    """A Chromium that runs without a screen.

    Args:
        program: The program.
        environment: Environment variables that the program needs besides those of this process.
    """

    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def headless_browser(*, cache: Path | None = None, report: Report | None = None) -> Browser:
    """Return the stack's browser, in which the page of ``tributary ui`` is tested.

    Args:
        cache: Folder of the cache; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress.

    Raises:
        UnavailableError: No Chromium is installed, and Debian's package cannot be fetched.
        StackError: The package cannot be unpacked.
    """
    for name in ("chromium-headless-shell", "chromium", "chromium-browser"):
        if installed := shutil.which(name):
            return Browser(Path(installed))
    root = unpack(PACKAGE, cache=cache, report=report)
    program = root / _PROGRAM
    if not program.exists():
        raise UnavailableError(f"Debian's package {PACKAGE.name} has no {program.name}")
    libraries = {file.parent for file in (root / "usr/lib").rglob("*.so*")} - {program.parent}
    settings = {"LD_LIBRARY_PATH": os.pathsep.join(sorted(map(str, libraries)))}
    fonts = root / "usr/share/fonts"
    if fonts.is_dir():  # this machine has none of its own
        settings["FONTCONFIG_FILE"] = str(_font_configuration(root, fonts))
    return Browser(program, settings)


def _font_configuration(root: Path, fonts: Path) -> Path:
    """Return the file that names the unpacked fonts to the stack's browser."""
    file = root / "fonts.conf"
    if not file.exists():
        file.write_text(
            '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
            f"<dir>{fonts}</dir><dir>/usr/share/fonts</dir>"
            "<cachedir prefix='xdg'>fontconfig</cachedir></fontconfig>\n",
            "utf-8",
        )
    return file
