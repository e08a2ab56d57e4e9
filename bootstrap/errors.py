"""Errors of the bootstrap.

Each error names the failure and the next step.
"""

from __future__ import annotations

from schemas.errors import TributaryError


class BootstrapError(TributaryError):
    """A bootstrap that cannot continue."""


class AttemptSpoiledError(BootstrapError):
    """An attempt whose copy can no longer be completed exactly.

    Another attempt is needed.
    """


class CopyError(BootstrapError):
    """Chunks that could not be copied even after retries."""


class HandoffTimeoutError(BootstrapError):
    """A wait of the handoff that took too long.

    The message has the state of connector, log and topic, from which the cause can be found.
    """
