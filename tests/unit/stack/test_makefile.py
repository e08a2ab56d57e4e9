"""The behaviour of `make` in a fresh clone, before an environment exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXECUTORS = Path("deploy/kubernetes/executors/tributary.yaml")
TOOLS = ("make", "sh", "rm", "touch", "awk", "echo")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a ``bin`` folder for PATH with only the test's Pythons."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is not installed"
        (tools / tool).symlink_to(found)
    for name in ("Makefile", "requirements.lock", "requirements-uv.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def python(clone: Path, name: str, *, fits: bool, venv: str = "exit 1") -> None:
    """Create a fake Python, which fits or not; ``venv`` is what its `-m venv` does."""
    path = clone / "bin" / name
    path.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f"--version) echo 'Python of {name}';;\n-c) exit {0 if fits else 1};;\n-m) {venv};;\nesac\n"
    )
    path.chmod(0o755)


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=clone,
        env={"PATH": str(clone / "bin"), "HOME": str(clone)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_lists_every_command_a_person_runs() -> None:
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, env=dict(os.environ)
    ).stdout
    names = re.findall(r"^  make (\S+) +\S", listed, re.MULTILINE)
    assert {"setup", "demo", "test", "test-unit", "check", "test-all", "bench"} <= set(names)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == set(names)


def test_an_unsupported_python_is_refused_with_what_to_do(clone: Path) -> None:
    python(clone, "python3", fits=False)
    refused = make(clone, "test")
    assert refused.returncode != 0
    assert "Python 3.10, 3.11 or 3.12 is needed; Python of python3 was found." in refused.stderr
    assert "make setup PYTHON=" in refused.stderr
    assert not (clone / ".venv").exists()


def test_a_supported_python_beside_the_default_one_is_taken(clone: Path) -> None:
    python(clone, "python3", fits=False)
    python(clone, "python3.12", fits=True)
    assert "creating .venv with Python of python3.12" in make(clone, "setup").stdout


def test_the_named_python_goes_first(clone: Path) -> None:
    python(clone, "python3", fits=True)
    python(clone, "mine", fits=True)
    assert "creating .venv with Python of mine" in make(clone, "setup", "PYTHON=mine").stdout


def test_a_python_without_venv_is_named_and_leaves_nothing(clone: Path) -> None:
    python(clone, "python3", fits=True)
    refused = make(clone, "setup")
    assert refused.returncode != 0
    assert "python3-venv" in refused.stderr
    assert not (clone / ".venv").exists()


def docker(clone: Path, answer: str) -> str:
    """Copy the files that name images, and create a fake docker that runs ``answer``."""
    (clone / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "Dockerfile", clone / "deploy")
    (clone / EXECUTORS).parent.mkdir(parents=True)
    shutil.copy(ROOT / EXECUTORS, clone / EXECUTORS)
    for tool in ("sed", "sort", "tr", "grep", "mv"):
        found = shutil.which(tool)
        assert found, f"{tool} is not installed"
        (clone / "bin" / tool).symlink_to(found)
    path = clone / "bin" / "docker"
    path.write_text(f'#!/bin/sh\necho "$*" >> asked\n{answer}\n')
    path.chmod(0o755)
    return Path(shutil.copy(ROOT / "docker-compose.yml", clone)).read_text("utf-8")


def test_images_get_the_digests_that_their_registries_tell(clone: Path) -> None:
    before = docker(clone, f"echo '\"sha256:{'ab' * 32}\"'")
    assert make(clone, "pin-images").stderr == ""
    after = (clone / "docker-compose.yml").read_text("utf-8")
    wanted = re.sub(r"(?m)^( *image: [^@ \n]+).*$", rf"\1@sha256:{'ab' * 32}", before)
    assert after == wanted != before
    image = (clone / "deploy" / "Dockerfile").read_text("utf-8")
    (base,) = re.findall(rf"(?m)^ARG BASE=(\S+)@sha256:{'ab' * 32}$", image)
    settings = (clone / EXECUTORS).read_text("utf-8")
    spark = rf"(?m)^ +spark\.kubernetes\.container\.image: (\S+)@sha256:{'ab' * 32}$"
    (executor,) = re.findall(spark, settings)
    assert re.sub("@sha256:.*", "", settings) == (ROOT / EXECUTORS).read_text("utf-8")
    asked = {line.split()[-1] for line in (clone / "asked").read_text().splitlines()}
    assert asked == {base, executor, *re.findall(r"(?m)^ *image: ([^@ \n]+)", before)}


@pytest.mark.parametrize("answer", ["exit 1", "echo Name: docker.io/library/mysql; echo Digest:"])
def test_an_image_without_a_digest_ends_the_pinning(clone: Path, answer: str) -> None:
    before = docker(clone, answer)
    refused = make(clone, "pin-images")
    assert refused.returncode != 0
    assert "apache/kafka:4.3.1: its digest cannot be read" in refused.stderr
    assert (clone / "docker-compose.yml").read_text("utf-8") == before


def test_all_that_is_fetched_is_known_by_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    commands = re.findall(r"\bpip (?:install|sync)\b[^;]*", makefile)
    # What is installed from here fetches nothing.
    fetching = [one for one in commands if "--no-deps --no-build-isolation -e " not in one]
    assert [len(commands), len(fetching)] == [5, 3]
    assert all("--require-hashes" in one for one in fetching), fetching
    chosen = re.search(r"^UV := (.*)$", makefile, re.MULTILINE)
    assert chosen is not None
    lock = (ROOT / "requirements-uv.lock").read_text()
    assert re.findall(r"^\w\S*", lock, re.MULTILINE) == [f"uv=={chosen[1]}"]
    assert lock.count("--hash=sha256:") > 10, "not the wheels of all platforms"


def test_ci_runs_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith("exec make test")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_readme_says_which_command_leaves_tests_out() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(test(?:-all)?):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert "not breadth" in recipes["test"]
    assert "-m" not in recipes["test-all"].split("pytest")[1]
    described = re.search(r"^make test +# (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert described is not None
    assert "every test" not in described[1]
    assert "make test-all" in described[1]
