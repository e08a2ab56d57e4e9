"""lineage.py EVENTS MANIFEST: prints from where dbt's models come, down to the source.

EVENTS is a file of OpenLineage events, one a line. MANIFEST is dbt's manifest.json, which names the
sources of each model. A table of the lake has the same name in both: the one in the metastore.
"""

import json
import sys
from pathlib import Path

events, manifest = (Path(argument).read_text("utf-8") for argument in sys.argv[1:3])

lake: dict[str, str] = {}
origins: dict[str, set[str]] = {}
for event in map(json.loads, events.splitlines()):
    for output in event["outputs"]:
        for other in output.get("facets", {}).get("symlinks", {}).get("identifiers", ()):
            lake[other["name"]] = output["name"]
            inputs = {f"{one['namespace']} {one['name']}" for one in event["inputs"]}
            origins.setdefault(other["name"], set()).update(inputs)

known = json.loads(manifest)
for model, parents in known["parent_map"].items():
    if model.startswith("model."):
        node = known["nodes"][model]
        print(f"{node['schema']}.{node['alias']}, by dbt")
        for parent in sorted(set(parents) & set(known["sources"])):
            name = "{schema}.{identifier}".format_map(known["sources"][parent])
            print(f"  <- {name}, in {lake[name]}")
            for origin in sorted(origins[name]):
                print(f"    <- {origin}")
