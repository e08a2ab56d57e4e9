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


WATCH = "repeats a job at intervals, as long as something lives; it waits for nothing"
CONDITION = "waits for other threads of this process, by a condition that they notify"
ELSEWHERE = "is no part of Tributary's own packages, and may not import them"
OTHER_LOOPS = {
    "cdc/runtime/waiting.py:wait_while": "the loop itself",
    "cdc/runtime/waiting.py:answered_within": "gives a database driver's own wait a bound",
    "cdc/runtime/task_watch.py:_watch_stages": WATCH,
    "cdc/sources/mysql/lock_watch.py:run": WATCH,
    "cdc/store/lease.py:_keep_lease": WATCH,
    "cdc/run/cycle.py:run_continuously": WATCH,
    "bootstrap/snapshot.py:_watch_tasks": WATCH,
    "operate/automatic_resync.py:repeat": WATCH,
    "operate/lineage/sending.py:follow": WATCH,
    "operate/verify/sampling.py:_sample_until_stopped": WATCH,
    "operate/demo/writers.py:_write_until_stopped": WATCH,
    "operate/demo/story.py:_change_and_run": "the pause between the runs that the demo shows",
    "cdc/run/workers.py:finish": CONDITION,
    "cdc/run/workers.py:_next": CONDITION,
    "cdc/runtime/copy_sessions.py:_take": CONDITION,
    "cdc/sources/postgres/exact_view.py:_tested": "ten tries that yield a view in the middle; each"
    " pause lasts for 2.7 s at most, and each try waits for the replica by `wait_while`",
    "airflow/src/tributary_airflow/guard.py:_wait": ELSEWHERE,
    "airflow/src/tributary_airflow/triggers.py:run": ELSEWHERE,
}
"""Functions whose loops wait in another way than by `wait_while`, each with the reason."""
BOUND = re.compile(r"\w*(?:timeout|seconds|_s|_S)")


def _waits(node: ast.AST, *, joins: bool) -> bool:
    """Whether a call sleeps or waits; with ``joins``, also whether it joins with a time limit."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func).split(".")
    if called[-1] == "sleep" or (called[-1] == "wait" and len(called) > 1):
        return True
    bounds = [*map(ast.unparse, node.args), *(str(one.arg) for one in node.keywords)]
    return (
        joins
        and called[-1] == "join"
        and any(BOUND.fullmatch(one.split(".")[-1]) for one in bounds)
    )


def _looks_at_a_deadline(node: ast.AST) -> bool:
    """Whether an expression compares the monotonic clock."""
    return isinstance(node, ast.Compare) and "monotonic()" in ast.unparse(node)


def waiting_loops(tree: ast.AST) -> dict[str, int]:
    """The functions with a loop that waits, each with the line; inner functions are of their own.

    A loop waits if it sleeps or waits. A `while` also waits if it joins a thread with a time limit,
    or compares the time without a Kafka consumer, whose `poll` has a time limit of its own.
    """
    found: dict[str, int] = {}

    def visit(node: ast.AST, function: str, loops: list[ast.AST]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, loops = node.name, []
        if isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
            loops = [*loops, node]
        polls = [one for one in loops if isinstance(one, ast.While)]
        timed = polls and not any("consumer.poll(" in ast.unparse(one) for one in polls)
        if (loops and _waits(node, joins=bool(polls))) or (timed and _looks_at_a_deadline(node)):
            found.setdefault(function, getattr(node, "lineno", 0))
        for child in ast.iter_child_nodes(node):
            visit(child, function, loops)

    visit(tree, "", [])
    return found


@pytest.mark.parametrize("file", [*MODULES, *AIRFLOW], ids=name)
def test_every_wait_is_the_one_that_has_a_bound(file: Path) -> None:
    """Only `cdc.runtime.waiting.wait_while` may wait in a loop, because it has a time limit."""
    found = waiting_loops(ast.parse(file.read_text("utf-8")))
    left = {f"{name(file)}:{function}": line for function, line in found.items()}
    assert {one: line for one, line in left.items() if one not in OTHER_LOOPS} == {}, (
        "use wait_while, wait_while_moving or pause"
    )
    stale = [one for one in OTHER_LOOPS if one.startswith(f"{name(file)}:") and one not in left]
    assert stale == [], "no such loop is left"


def test_each_exempted_loop_is_in_a_module_that_exists() -> None:
    known = {name(file) for file in (*MODULES, *AIRFLOW)}
    assert {one.split(":")[0] for one in OTHER_LOOPS} <= known


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("while not ready():\n        time.sleep(1)", True),
        ("for _ in range(9):\n        sleep(1)", True),
        ("while not over.wait(1):\n        look()", True),
        ("while thread.is_alive():\n        thread.join(_END_S)", True),
        ("while held() and time.monotonic() < deadline:\n        attempt()", True),
        ("while True:\n        if time.monotonic() > deadline:\n            raise Late", True),
        ("for thread in threads:\n        thread.join(_END_S)", False),
        ("for row in rows:\n        print(', '.join(row))", False),
        ("for it in its:\n        def late():\n            time.sleep(1)", False),
        ("while left and time.monotonic() < end:\n        consumer.poll(1)", False),
        ("for row in rows:\n        if time.monotonic() > end:\n            return", False),
        ("time.sleep(1)", False),
    ],
)
def test_the_rule_finds_each_kind_of_waiting_loop(code: str, found: bool) -> None:
    assert bool(waiting_loops(ast.parse(f"def f():\n    {code}\n"))) is found


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
