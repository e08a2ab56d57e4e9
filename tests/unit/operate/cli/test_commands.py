from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from cdc.config import Config, PostgresSourceConfig, load, parse
from cdc.config.secrets import SecretRef
from cdc.errors import KafkaError, LostHistoryError, SchemaChangeError, StateError
from cdc.store.table_state import State
from operate.cli import app
from operate.cli.options import (
    Commands,
    ConfigOption,
    OutputOption,
    VerboseOption,
    configure_logging,
)
from operate.cli.project import starting_config
from operate.context import Services
from operate.exit_codes import ExitCode, exit_code
from operate.render import Output, Renderer
from operate.table_outcome import Outcome, exit_code_of
from schemas.table import TableId
from tests.unit.cdc.configuration import environment as environment
from tests.unit.cdc.configuration import full

ROOT = Path(__file__).parents[4]
TRIBUTARY = [sys.executable, "-c", "from operate.cli import main; main()"]

HEAVY = {"pyspark", "py4j", "sqlalchemy", "psycopg", "confluent_kafka", "httpx", "stack"}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIBUTARY_CONFIG", raising=False)
    monkeypatch.setenv("SHOP_ADMIN_PASSWORD", "canary-admin")
    yield CliRunner()
    configure_logging(0)


def failing(error: Callable[[], BaseException]) -> typer.Typer:
    """A program with one command in a group, which fails."""
    root, group = typer.Typer(cls=Commands), typer.Typer()
    root.add_typer(group, name="group")

    @root.callback()
    def callback() -> None: ...

    @group.command()
    def fail(
        config: ConfigOption = None, output: OutputOption = Output.TEXT, verbose: VerboseOption = 0
    ) -> None:
        raise error()

    return root


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_shared_options_and_a_text(name: str) -> None:
    options = {flag for parameter in COMMANDS[name].params for flag in parameter.opts}
    assert {"--config", "--output", "--verbose", "-v"} <= options
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, runner: CliRunner) -> None:
    shown = runner.invoke(app, [*name.split(), "--help"])
    assert shown.exit_code == ExitCode.OK
    assert "Usage" in shown.output
    helps = [getattr(parameter, "help", None) or "" for parameter in COMMANDS[name].params]
    if any("source:" in text for text in helps):
        assert "[source:]schema.table" in shown.output, "taken for markup"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_a_usage_error(name: str, runner: CliRunner) -> None:
    assert runner.invoke(app, [*name.split(), "--nope"]).exit_code == ExitCode.USAGE
    assert runner.invoke(app, [*name.split(), "--output", "xml"]).exit_code == ExitCode.USAGE


def test_an_unknown_command_is_a_usage_error(runner: CliRunner) -> None:
    assert runner.invoke(app, ["onbord"]).exit_code == ExitCode.USAGE


def test_help_needs_no_engine_and_is_quick() -> None:
    script = (
        "import sys\n"
        "from operate.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stderr.strip() == "[]"
    assert "onboard" in done.stdout


def test_the_version_is_shown(runner: CliRunner) -> None:
    assert re.fullmatch(r"tributary \d+\.\d+\.\d+\n", runner.invoke(app, ["--version"]).output)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    done = subprocess.run(
        TRIBUTARY,
        env={
            **os.environ,
            "_TRIBUTARY_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": "tributary con",
            "COMP_CWORD": "1",
            "_TYPER_COMPLETE_ARGS": "tributary con",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "config" in done.stdout
    assert "discover" not in done.stdout


def test_an_error_is_a_message_and_a_remedy_without_a_traceback(runner: CliRunner) -> None:
    program = failing(lambda: KafkaError("broker down", remedy="Start it.", topic="t"))
    shown = runner.invoke(program, ["group", "fail"])
    assert shown.exit_code == ExitCode.ERROR
    assert shown.stderr == "Error: broker down\nWhat to do: Start it.\n"
    assert shown.stdout == ""


def test_an_error_for_programs_is_json_on_stdout(runner: CliRunner) -> None:
    program = failing(lambda: KafkaError("broker down", remedy="Start it.", topic="t"))
    shown = runner.invoke(program, ["group", "fail", "--output", "json"])
    assert shown.exit_code == ExitCode.ERROR
    assert json.loads(shown.stdout)["remedy"] == "Start it."
    assert shown.stderr == ""


def test_verbose_shows_the_traceback(runner: CliRunner) -> None:
    program = failing(lambda: KafkaError("broker down", remedy="Start it."))
    shown = runner.invoke(program, ["group", "fail", "-v"])
    assert "Traceback (most recent call last)" in shown.stderr
    assert shown.stderr.endswith("What to do: Start it.\n")


def test_an_unforeseen_error_is_named_and_its_traceback_kept_for_verbose(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PW", "canary-unforeseen")
    secret = SecretRef("env", "SOME_PW").resolve()
    program = failing(lambda: ZeroDivisionError(f"secret {secret}\nmore"))
    shown = runner.invoke(program, ["group", "fail"])
    assert shown.exit_code == ExitCode.ERROR
    assert "Error: unexpected ZeroDivisionError: secret ***\n" in shown.stderr
    assert "run the command again with -v" in shown.stderr.lower()
    assert "Traceback" not in shown.stderr
    shown = runner.invoke(program, ["group", "fail", "-v"])
    assert "ZeroDivisionError: secret ***" in shown.stderr
    assert "in fail" in shown.stderr
    assert "canary-unforeseen" not in shown.output


@pytest.mark.parametrize("kind", [LostHistoryError, SchemaChangeError])
def test_an_error_that_asks_for_a_bootstrap_has_a_code_of_its_own(
    kind: type[LostHistoryError], runner: CliRunner
) -> None:
    program = failing(lambda: kind("gap", remedy="Bootstrap."))
    assert runner.invoke(program, ["group", "fail"]).exit_code == ExitCode.NEEDS_BOOTSTRAP


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (typer.Exit(3), 3),
        (typer.Abort(), 1),
        (typer.BadParameter("no"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_typer_raises_keeps_its_code(
    error: BaseException, code: int, runner: CliRunner
) -> None:
    assert runner.invoke(failing(lambda: error), ["group", "fail"]).exit_code == code


def test_a_command_that_a_table_in_need_of_a_bootstrap_refuses_says_so() -> None:
    needs, paused = (
        StateError("it is not followed", remedy="Look.", state=state.value)
        for state in (State.NEEDS_BOOTSTRAP, State.PAUSED)
    )
    refused = [Outcome(TableId("s", "public", "t"), "verify", error=error) for error in (needs,)]
    assert exit_code_of(refused) is ExitCode.NEEDS_BOOTSTRAP
    refused = [Outcome(TableId("s", "public", "t"), "verify", error=error) for error in (paused,)]
    assert exit_code_of(refused) is ExitCode.SOME_FAILED


def test_needing_a_bootstrap_goes_before_a_failure() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4]
    assert exit_code(failed=False, needs_bootstrap=False) is ExitCode.OK
    assert exit_code(failed=True, needs_bootstrap=False) is ExitCode.SOME_FAILED
    assert exit_code(failed=False, needs_bootstrap=True) is ExitCode.NEEDS_BOOTSTRAP
    assert exit_code(failed=True, needs_bootstrap=True) is ExitCode.NEEDS_BOOTSTRAP


def test_logs_go_to_stderr_by_level_and_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PW", "canary-logged")
    secret = SecretRef("env", "SOME_PW").resolve()
    shown = {}
    for verbosity in (0, 1, 2, 5):
        configure_logging(verbosity)
        log = logging.getLogger("cdc.some")
        log.debug("debug %s", secret)
        log.info("info %s", secret)
        log.warning("warning %s", secret)
        logging.getLogger("py4j").info("not ours")
        shown[verbosity] = capsys.readouterr().err
    assert [text.count("\n") for text in shown.values()] == [1, 2, 3, 3]
    assert "WARNING cdc.some: warning ***" in shown[0]
    assert "canary" not in "".join(shown.values())
    configure_logging(0)


def test_init_writes_a_configuration_that_loads(runner: CliRunner, tmp_path: Path) -> None:
    shown = runner.invoke(app, ["init"])
    assert shown.exit_code == ExitCode.OK, shown.output
    assert "Wrote tributary.yaml" in shown.stdout
    config = load()
    assert config.lake.url == str(tmp_path / "lake")
    assert config.sources["shop"].credentials.admin.user == "tributary"


def test_init_leaves_a_file_that_is_there_unless_told(runner: CliRunner) -> None:
    Path("mine.yaml").write_text("mine")
    shown = runner.invoke(app, ["init", "--config", "mine.yaml"])
    assert shown.exit_code == ExitCode.ERROR
    assert "mine.yaml already exists" in shown.stderr
    assert Path("mine.yaml").read_text() == "mine"
    shown = runner.invoke(app, ["init", "--config", "mine.yaml", "--force", "--output", "json"])
    assert json.loads(shown.stdout) == {"config": "mine.yaml"}
    assert Path("mine.yaml").read_text() == starting_config()


def test_init_says_when_it_cannot_write(runner: CliRunner) -> None:
    shown = runner.invoke(app, ["init", "--config", "not/there.yaml"])
    assert shown.exit_code == ExitCode.ERROR
    assert "cannot be written: No such file or directory" in shown.stderr


def test_the_examples_in_the_starting_configuration_work(monkeypatch: pytest.MonkeyPatch) -> None:
    text = starting_config()
    switched_on = re.sub(r'(?m)^( *)# ( *[\w.*"]+:( .*)?)$', r"\1\2", text)
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, f"canary-{name.lower()}")
    config = parse(switched_on)
    assert config.kafka.security.mechanism == "SCRAM-SHA-512"
    assert config.connect.connector == {"max.batch.size": "4096"}
    assert [str(one) for one in config.tables["public.orders"].partition_by] == [
        "country",
        "day(placed_at, Europe/Berlin)",
        "hash(customer_id, 64)",
    ]
    assert config.state.connection_url().startswith("postgresql+psycopg://tributary:canary-")
    on_s3 = parse(switched_on.replace("url: ./lake", "url: s3a://bucket/lake"))
    assert on_s3.lake.store == "s3"
    assert str(on_s3.lake.hadoop["fs.s3a.secret.key"]) == "canary-s3_secret_key"


def test_the_starting_configuration_shows_every_key() -> None:
    text = starting_config()

    def names(model: type[BaseModel]) -> Iterator[str]:
        for name, field in model.model_fields.items():
            yield field.alias or name
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from names(field.annotation)

    for name in {*names(Config), *names(PostgresSourceConfig)}:
        assert re.search(rf"\b{name}:", text), name


def test_a_demo_replaces_no_configuration_of_others(runner: CliRunner) -> None:
    Path("tributary.yaml").write_text("mine: true\n")
    shown = runner.invoke(app, ["demo", "--config", "tributary.yaml"])
    assert shown.exit_code == ExitCode.ERROR
    assert "already exists" in shown.stderr
    assert Path("tributary.yaml").read_text() == "mine: true\n"
    assert not Path(".tributary").exists(), "nothing was started"


def test_config_schema_prints_the_schema(runner: CliRunner) -> None:
    for arguments in (["config", "schema"], ["config", "schema", "--output", "json"]):
        shown = runner.invoke(app, arguments)
        assert shown.exit_code == ExitCode.OK
        assert json.loads(shown.stdout) == Config.json_schema()
    assert shown.stdout.count("\n") == 1


def test_a_configuration_that_is_wrong_ends_a_command_by_its_path(runner: CliRunner) -> None:
    document = yaml.safe_load(starting_config())
    document["kafka"]["bootstrap_server"] = document["kafka"].pop("bootstrap_servers")
    Path("tributary.yaml").write_text(yaml.safe_dump(document))
    shown = runner.invoke(app, ["status", "--output", "json"])
    assert shown.exit_code == ExitCode.ERROR
    error = json.loads(shown.stdout)
    assert error["error"] == "ConfigError"
    assert "did you mean 'bootstrap_servers'?" in error["message"]


def test_results_and_errors_do_not_mix_up_streams(runner: CliRunner) -> None:
    program = typer.Typer(cls=Commands)

    @program.callback()
    def callback() -> None: ...

    @program.command()
    def work(output: OutputOption = Output.TEXT, verbose: VerboseOption = 0) -> None:
        renderer = Renderer(output)
        renderer.document({"done": 1})
        renderer.note("half way")
        raise typer.Exit(ExitCode.SOME_FAILED)

    shown = runner.invoke(program, ["work", "--output", "json"])
    assert shown.exit_code == ExitCode.SOME_FAILED
    assert json.loads(shown.stdout) == {"done": 1}
    assert shown.stderr == "half way\n"


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("options", "soon"), [([], True), (["--continuous"], False)])
def test_only_a_run_that_is_not_repeated_lets_spark_start_fast(
    runner: CliRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    soon: bool,
) -> None:
    seen = list[bool]()

    def runs(services: Services, *_: object) -> None:
        seen.append(services.ends_soon)
        raise typer.Exit

    monkeypatch.setattr("operate.run.Runs", runs)
    file = tmp_path / "tributary.yaml"
    own = {"spark": {"master": "local[1]"}, "state": {"url": f"sqlite:///{tmp_path / 's.db'}"}}
    file.write_text(yaml.safe_dump({**full(), **own}))
    result = runner.invoke(app, ["run", *options, "--config", str(file)])
    assert (result.exit_code, seen) == (0, [soon]), result.output
