"""Errors of the bootstrap.

Each error names the failure and the next step.
"""

from __future__ import annotations

from schemas.errors import TributaryError


class BootstrapError(TributaryError):
    """The bootstrap cannot continue."""


class AttemptSpoiledError(BootstrapError):
    """The attempt's copy can no longer become exact, so another attempt is needed."""


class CopyError(BootstrapError):
    """Chunks could not be copied even after retries."""


class HandoffTimeoutError(BootstrapError):
    """The handoff waited for something that did not happen in time.

    The message contains the states of connector, log and topic, which can reveal the cause.
    """
