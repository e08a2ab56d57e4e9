"""Which lake URLs count as folders of this machine, and for which URLs Spark is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from cdc.config import Config
from cdc.errors import LakeError
from operate.check import lake, of_spark_and_lake
from operate.lake_storage import folder_here
from tests.unit.cdc.configuration import minimal

if TYPE_CHECKING:
    from operate.context import Services


def config(url: str, *, hadoop: Any = None, conf: Any = None) -> Config:
    lake = {"url": url, "hadoop": hadoop or {}}
    return Config.model_validate({**minimal(), "lake": lake, "spark": {"conf": conf or {}}})


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/lake", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        # As for Hadoop, which writes there: no escapes.
        ("file:///data/my%20lake", "/data/my%20lake"),
        ("s3a://bucket/lake", None),
    ],
)
def test_which_lakes_are_folders_of_this_machine(url: str, folder: str | None) -> None:
    assert folder_here(config(url), url) == (None if folder is None else Path(folder))


@pytest.mark.parametrize("name", ["fs.defaultFS", "fs.default.name"])
def test_a_path_is_of_the_file_system_that_settings_name(name: str) -> None:
    elsewhere = "hdfs://namenode:8020"
    assert folder_here(config("/lake", hadoop={name: elsewhere}), "/lake") is None
    assert folder_here(config("/lake", conf={f"spark.hadoop.{name}": elsewhere}), "/lake") is None
    assert folder_here(config("/lake", hadoop={"fs.s3a.endpoint": "x"}), "/lake") == Path("/lake")


@dataclass
class NoSpark:
    """The services that `check` needs for the lake, on a machine where Spark does not start."""

    config: Config

    @property
    def spark(self) -> Any:
        raise LakeError("Spark was asked", remedy="none")


def test_check_asks_spark_about_a_path_of_another_file_system(tmp_path: Path) -> None:
    (line,) = lake(cast("Services", NoSpark(config(str(tmp_path)))))
    assert line.status == "ok"
    elsewhere = config(str(tmp_path / "a"), hadoop={"fs.defaultFS": "hdfs://namenode:8020"})
    with pytest.raises(LakeError, match="Spark was asked"):
        lake(cast("Services", NoSpark(elsewhere)))
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("hadoop", "names"),
    [({}, ["Spark", "lake"]), ({"fs.defaultFS": "hdfs://node:8020"}, ["Spark"])],
)
def test_check_asks_a_cluster_that_cannot_be_used_once(
    tmp_path: Path, hadoop: Any, names: list[str]
) -> None:
    document = {
        **minimal(),
        "lake": {"url": str(tmp_path), "hadoop": hadoop},
        "catalog": {"metastore": "thrift://metastore:9083"},
        "spark": {"master": "spark://master:7077"},
        "state": {"url": "postgresql+psycopg://host/state"},
    }
    lines = list(of_spark_and_lake(cast("Services", NoSpark(Config.model_validate(document)))))
    assert [line.name for line in lines] == names
    assert [line.name for line in lines if line.status == "error"] == ["Spark"]
