"""Turns a verdict into Airflow's exceptions."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tributary_airflow.outcome import Judged, Verdict

_EXCEPTIONS: dict[Verdict, type[AirflowException]] = {
    Verdict.SKIP: AirflowSkipException,
    Verdict.RETRY: AirflowException,
    Verdict.FAIL: AirflowFailException,
}


def raise_verdict(judged: Judged) -> None:
    """Raise the Airflow exception of a verdict; do nothing if the verdict is DONE.

    Raises:
        AirflowSkipException: There was nothing to do.
        AirflowFailException: A retry cannot help.
        AirflowException: A retry can help.
    """
    if judged.verdict is not Verdict.DONE:
        raise _EXCEPTIONS[judged.verdict](judged.message)
