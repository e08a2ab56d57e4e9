"""Prepares a capture for as many tables of a command as possible."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.errors import RefusedError, UnreachableError
from operate import tier_capture
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)


def prepare_each(services: Services, group: tier_capture.Group) -> dict[TableId, TributaryError]:
    """Create or repair a capture for as many tables of a command as possible.

    If an error is about some of the tables, or about their topics, the capture is prepared for the
    other tables. If a source's server accepts no connection, the error counts as an error about all
    tables, even if it names only the first table.

    Returns:
        The tables that the capture cannot take, each with the error.

    Raises:
        TributaryError: The error of `prepare`, if it names none of the tables, or all of them.
    """
    refused: dict[TableId, TributaryError] = {}
    while left := tuple(table for table in group.tables if table not in refused):
        try:
            tier_capture.prepare(services, replace(group, tables=left))
        except TributaryError as error:
            found = _tables_named_by(error, group.capture, left)
            if not found or len(found) == len(group.tables):
                raise
            _log.warning("%d tables are not captured: %s", len(found), error)
            refused |= found
        else:
            break
    return refused


def _tables_named_by(
    error: TributaryError, capture: CaptureNames, tables: Sequence[TableId]
) -> dict[TableId, TributaryError]:
    """Return the tables that an error of a capture is about, each with its own error."""
    if isinstance(error, RefusedError):
        errors = dict(error.errors)
    elif isinstance(error, UnreachableError):
        return {}
    else:
        about = (error.context.get("table"), error.context.get("refused"))
        errors = dict.fromkeys((*about, *error.context.get("tables", ())), error)
    return {
        table: errors[key]
        for table in tables
        for key in (table, capture.topic(table))
        if key in errors
    }
