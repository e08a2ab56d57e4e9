"""Errors of the bootstrap. Each names what failed and what to do next."""

from __future__ import annotations

from schemas.errors import TributaryError


class BootstrapError(TributaryError):
    """A bootstrap that cannot continue."""


class AttemptSpoiledError(BootstrapError):
    """An attempt whose copy cannot be completed exactly any more; another attempt can be."""


class CopyError(BootstrapError):
    """Chunks that could not be copied, after retries."""


class HandoffTimeoutError(BootstrapError):
    """A wait between snapshot and stream that did not end; carries the evidence of the cause."""
