"""Errors of the bootstrap. Each names what failed and what to do next."""

from __future__ import annotations

from schemas.errors import TributaryError


class BootstrapError(TributaryError):
    """A bootstrap that cannot go on."""


class AttemptSpoiledError(BootstrapError):
    """What this attempt has copied can no longer be completed exactly; another attempt can."""


class CopyError(BootstrapError):
    """Chunks that could not be copied, after retries."""


class HandoffTimeoutError(BootstrapError):
    """A wait between snapshot and stream that did not end; carries the evidence of why."""
