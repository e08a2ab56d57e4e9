"""A Spark session loads classes from the archive, or from the jars if the archive is unusable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.runtime.jars import spark_jars
from cdc.runtime.java import find_java
from cdc.runtime.progress import NullProgress
from operate.warm_up import warm_up

_SESSION = """
import sys
from pathlib import Path
from cdc.runtime import class_archive, spark
from tests.spark.local import local_config
archive, folder, log = map(Path, sys.argv[1:])
class_archive.find_archive = lambda prefix: archive
config = local_config(folder)
config.spark.conf["spark.driver.extraJavaOptions"] = f"-Xlog:class+load:file={log}"
session = spark.session(config)
found = spark.java_class(session, "org.apache.hudi.HoodieVersion").get()
print("Hudi", found, session.range(10).count())
spark.end_jvm(60)
"""
_CLASS = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
_WORDS_OF_JVM = re.compile(r"\[cds|\[warning|OpenJDK|archive", re.IGNORECASE)


@pytest.fixture(scope="module")
def archive() -> Path:
    """The class archive of this environment; it is created if it does not exist."""
    return warm_up(NullProgress()).archive


def start(archive: Path, folder: Path) -> str:
    """Start a Spark session from an archive; returns the JVM's log of loaded classes.

    Asserts that the JVM prints no warnings.
    """
    log = folder / "classes.log"
    done = subprocess.run(
        [sys.executable, "-c", _SESSION, archive, folder, log],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hudi 1.2.0 10\n"
    assert not _WORDS_OF_JVM.search(done.stderr), done.stderr
    return log.read_text()


def test_a_session_takes_classes_from_the_archive(archive: Path, tmp_path: Path) -> None:
    assert f"{_CLASS} source: shared objects file (top)" in start(archive, tmp_path)


@pytest.mark.parametrize(
    "how",
    ["damaged", *(pytest.param(how, marks=pytest.mark.breadth) for how in ("garbage", "foreign"))],
)
def test_a_session_works_and_is_quiet_with_an_archive_that_is_no_good(
    archive: Path, tmp_path: Path, how: str
) -> None:
    bad = tmp_path / "bad.jsa"
    if how == "garbage":
        bad.write_bytes(b"x" * 100_000)
    elif how == "foreign":  # of another class path
        java = find_java().executable
        record = ["-XX:ArchiveClassesAtExit=" + str(bad), "-cp", str(spark_jars()[0]), "-version"]
        subprocess.run([java, *record], check=True, capture_output=True)
        assert bad.is_file()
    else:
        whole = bytearray(archive.read_bytes())
        middle = len(whole) // 2
        whole[middle : middle + 4096] = bytes(4096)
        bad.write_bytes(whole)
    assert f"{_CLASS} source: file:" in start(bad, tmp_path)
