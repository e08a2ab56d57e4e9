"""The instants in Hudi's printed form of a timeline."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cdc.errors import LakeError
from cdc.lake.instants import TimelineAction, actions_of

OLD, NEW = "20260101000000000", "20260102000000123"


@dataclass(frozen=True)
class Listed:
    """A Java list that prints a text."""

    text: str

    def toString(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("[]", []),
        (f"[[{OLD}__commit__COMPLETED]]", [(OLD, "commit", "COMPLETED")]),
        (
            f"[[{OLD}__{NEW}__rollback__COMPLETED], [==>{NEW}__replacecommit__REQUESTED]]",
            [(OLD, "rollback", "COMPLETED"), (NEW, "replacecommit", "REQUESTED")],
        ),
        ("[[==>20260101000000__commit__INFLIGHT]]", [("20260101000000", "commit", "INFLIGHT")]),
    ],
)
def test_the_actions_of_a_printed_timeline(printed: str, found: list[tuple[str, str, str]]) -> None:
    assert actions_of(Listed(printed)) == [TimelineAction(*one) for one in found]


@pytest.mark.parametrize("printed", ["[[commit]]", f"[[{OLD}__commit__COMPLETED], ?]"])
def test_an_action_of_unknown_form_is_an_error(printed: str) -> None:
    with pytest.raises(LakeError, match="unknown form"):
        actions_of(Listed(printed))
