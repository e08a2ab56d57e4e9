"""Folders of Java that report any version."""

from __future__ import annotations

from pathlib import Path


def install(home: Path, version: str) -> Path:
    """Create a program that reports this version of Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    program.chmod(0o755)
    return home
