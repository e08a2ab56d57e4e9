"""Rules of the code base that no linter checks. The import rules are in pyproject.toml."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "cdc", "bootstrap", "tributary_reader", "operate", "stack")
MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
AIRFLOW = sorted((ROOT / "airflow" / "src").rglob("*.py"))
NO_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}


TESTS = sorted((ROOT / "tests").rglob("*.py"))
TESTS += sorted((ROOT / "airflow" / "tests").rglob("*.py"))


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", [*MODULES, *AIRFLOW, *TESTS], ids=name)
def test_a_module_is_named_after_what_it_holds_and_stays_readable(file: Path) -> None:
    assert not NO_NAMES & {*file.relative_to(ROOT).parts, file.stem}
    assert len(file.read_text("utf-8").splitlines()) <= 500, "split it"


@pytest.mark.parametrize("file", [*MODULES, *AIRFLOW, *TESTS], ids=name)
def test_a_function_is_short_enough_to_be_read_at_once(file: Path) -> None:
    """The linter counts parameters and branches. This test counts lines, with docstrings."""
    long = {
        node.name: lines
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > 60
    }
    assert long == {}, "split it"


@pytest.mark.parametrize("file", [*MODULES, *AIRFLOW], ids=name)
def test_every_wait_is_the_one_that_has_a_bound(file: Path) -> None:
    """Only `cdc.runtime.waiting.wait_while` may sleep in a loop, because it has a time limit."""
    loops = [n for n in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(n, ast.While)]
    asleep = [
        node.lineno
        for loop in loops
        for node in ast.walk(loop)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
    ]
    assert asleep == [], "use wait_while"


def cases_imported(code: str) -> list[str]:
    """The imports of files of cases, whose names begin with ``test_``, in a module's code."""
    imports = (n for n in ast.walk(ast.parse(code)) if isinstance(n, (ast.Import, ast.ImportFrom)))
    return [found for one in imports if re.search(r" tests\b.*\btest_", found := ast.unparse(one))]


@pytest.mark.parametrize("file", TESTS, ids=name)
def test_no_test_imports_a_file_of_cases(file: Path) -> None:
    """A file of cases can be split, renamed or run alone only if nothing imports it."""
    assert cases_imported(file.read_text("utf-8")) == [], "move what they share to a rig"


def test_an_import_of_a_file_of_cases_is_found() -> None:
    for code in (
        "from tests.unit.cdc.test_a import ready",
        "from tests.unit.cdc import test_a",
        "import tests.unit.cdc.test_a",
        "def later():\n    from tests.unit.cdc.test_a import ready",
    ):
        assert cases_imported(code), code
    assert not cases_imported("from tests.unit.cdc.task_topics import ready\nimport tests")


NEEDS_PYTHON = {"createDataFrame", "foreach", "foreachPartition", "foreachBatch", "rdd", "udf"}
NEEDS_PYTHON |= {"pandas_udf", "mapInPandas", "mapInArrow", "applyInPandas", "udtf", "toPandas"}


@pytest.mark.parametrize("file", MODULES, ids=name)
def test_the_executors_of_a_cluster_need_no_python(file: Path) -> None:
    used = {
        f"{node.lineno}: {node.attr}"
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in NEEDS_PYTHON
        # Java's class SparkContext has a method of this name, too.
        and file != ROOT / "cdc" / "runtime" / "local_frame.py"
    }
    assert used == set(), "use functions of Spark, and `local_frame` for rows of this process"


def test_hudis_settings_are_known_to_the_lake_only() -> None:
    found = [
        f"{name(file)}:{node.lineno}"
        for file in MODULES
        if not file.is_relative_to(ROOT / "cdc" / "lake")
        and name(file) != "tributary_reader/timeline.py"  # reads Hudi's files without Hudi
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("hoodie.")
    ]
    assert found == []


def test_the_columns_that_we_add_are_named_in_one_module_only() -> None:
    found = [
        f"{name(file)}:{node.lineno}"
        for file in MODULES
        if file != ROOT / "cdc" / "rows" / "columns.py"
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "_cdc_" in node.value
        and name(file) != "cdc/config/tables.py"  # the help of a setting, for people
    ]
    assert found == []


SOURCES = ROOT / "cdc" / "sources"


def test_a_source_is_asked_in_words_that_fit_every_kind() -> None:
    found = [
        f"{name(file)}: {word}"
        for file in sorted(SOURCES.glob("*.py"))
        for word in ("publication", "slot", "oid", "relfilenode", "attnum", "binlog")
        # "oid" is also a part of other words, for example of "avoid".
        if re.search(rf"\b{word}|_{word}", file.read_text("utf-8"), re.IGNORECASE)
    ]
    assert found == [], "name what it is for; the kind's own package has the kind's words"


def test_a_protocol_of_a_source_is_about_one_use() -> None:
    large = {
        node.name: asked
        for node in ast.parse((SOURCES / "base.py").read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        and (asked := sum(isinstance(part, ast.FunctionDef) for part in node.body)) > 14
    }
    assert large == {}, "split it"
