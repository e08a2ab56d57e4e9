"""The folder of a Hudi table without Hudi, for states that Spark cannot easily create."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def table(folder: Path, commits: dict[str, Any], *files: str, version: str = "6") -> Path:
    """Create a folder with the files of a Hudi table.

    A commit has its metadata, or a text: the state of an incomplete commit.
    """
    hoodie = folder / ".hoodie"
    hoodie.mkdir(parents=True)
    (hoodie / "hoodie.properties").write_text(f"#saved\nhoodie.table.version={version}\n")
    for instant, metadata in commits.items():
        if isinstance(metadata, str):
            (hoodie / f"{instant}.{metadata}").touch()
            continue
        action = "replacecommit" if "partitionToReplaceFileIds" in metadata else "commit"
        (hoodie / f"{instant}.{action}").write_text(json.dumps(metadata))
    for file in files:
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return folder
