from __future__ import annotations

from cdc.runtime.executors import Executor, wrong_versions

DRIVER = {"Java": "17", "Spark": "3.5.7", "Hudi": "1.2.0"}


def executor(host: str, **versions: str) -> Executor:
    return Executor("0", host, {**DRIVER, **versions})


def test_executors_that_are_as_the_driver_are_not_named() -> None:
    assert wrong_versions(DRIVER, [executor("a"), executor("b")]) == []


def test_hosts_with_the_same_differences_are_named_together() -> None:
    old = [executor("b", Java="11", Hudi="1.0.2"), executor("a", Java="11", Hudi="1.0.2")]
    assert wrong_versions(DRIVER, [executor("c"), *old, executor("d", Spark="3.5.1")]) == [
        "a, b: Java 11 instead of 17, Hudi 1.0.2 instead of 1.2.0",
        "d: Spark 3.5.1 instead of 3.5.7",
    ]


def test_a_part_that_an_executor_does_not_have_is_a_difference() -> None:
    missing = Executor("0", "a", {"Java": "17", "Spark": "3.5.7", "Hudi": ""})
    assert missing.differences(DRIVER) == ["Hudi of no known version instead of 1.2.0"]
