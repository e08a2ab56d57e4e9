"""Compares OpenLineage events with the client's classes, which are generated from the schemas."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import attr
import openlineage.client.generated as generated
from openlineage.client.generated import base

FACETS = {
    name: kind
    for module in pkgutil.iter_modules(generated.__path__)
    for name, kind in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).items()
    if isinstance(kind, type) and issubclass(kind, base.BaseFacet)
}


def checked(text: str) -> dict[str, Any]:
    """Return an event, after asserting that its keys and facets follow the specification."""
    event: dict[str, Any] = json.loads(text)
    fits(event, base.RunEvent, "the event")
    fits(event["run"], base.Run, "run")
    fits(event["job"], base.Job, "job")
    base.RunEvent(
        eventTime=event["eventTime"],
        eventType=base.EventType(event["eventType"]),
        run=base.Run(event["run"]["runId"]),
        job=base.Job(event["job"]["namespace"], event["job"]["name"]),
        producer=event["producer"],
    )
    holders = [event["run"], event["job"]]
    for side, kind in (("inputs", base.InputDataset), ("outputs", base.OutputDataset)):
        for dataset in event[side]:
            fits(dataset, kind, side)
            holders.append(dataset)
    for holder in holders:
        for key in ("facets", "inputFacets", "outputFacets"):
            for name, facet in holder.get(key, {}).items():
                kind = FACETS[facet["_schemaURL"].rpartition("/")[2]]
                fits(facet, kind, name)
                assert facet["_producer"].startswith("pkg:pypi/"), name
    return event


def fits(found: dict[str, Any], kind: type, where: str) -> None:
    """Assert that an object has all fields that a class requires, and only fields of the class."""
    known = {field.name: field for field in attr.fields(kind)}
    extra = {"_producer", "_schemaURL"} if issubclass(kind, base.BaseFacet) else set()
    assert set(found) <= set(known) | extra, where
    required = {name for name, field in known.items() if field.default is attr.NOTHING}
    assert required <= set(found), where
