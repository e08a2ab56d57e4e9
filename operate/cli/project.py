"""``init``, ``config``, ``package`` and ``warm-up``: the commands that concern no table."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Annotated

import typer

from cdc.errors import ConfigError
from operate.cli.options import ConfigOption, OutputOption, VerboseOption
from operate.render import Output, Renderer

config_app = typer.Typer(
    name="config", help="Describe the configuration file.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands of the whole project to the command ``tributary``."""
    app.command()(init)
    app.command()(package)
    app.command()(warm_up)
    app.add_typer(config_app)


def starting_config() -> str:
    """Return the commented configuration that ``tributary init`` writes."""
    return (importlib.resources.files("operate") / "starting_config.yaml").read_text("utf-8")


def init(
    config: ConfigOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Write a commented starting configuration."""
    path = config or Path("tributary.yaml")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(starting_config())
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists",
            remedy="Edit it, name another file with --config, or replace it with --force.",
            field=str(path),
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            remedy="Name a file with --config whose folder exists and that you can write.",
            field=str(path),
        ) from None
    renderer = Renderer(output)
    renderer.document({"config": str(path)})
    renderer.line(f"Wrote {path}. Fill it in, then run: tributary check --config {path}")


def package(
    file: Annotated[Path, typer.Argument(help="The archive to write.", metavar="[FILE]")] = Path(
        "tributary.tar.gz"
    ),
    s3: Annotated[
        bool, typer.Option("--s3", help="Add the jars for a lake on S3, 270 MiB.")
    ] = False,
    gcs: Annotated[
        bool, typer.Option("--gcs", help="Add the jar for a lake on Google Cloud Storage, 37 MiB.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
    verbose: VerboseOption = 0,
) -> None:
    """Write this environment and the locked jars to one archive, for machines without a network."""
    from operate.package import package as pack

    renderer = Renderer(output)
    with renderer.progress() as progress:
        asked = {"s3": s3, "gcs": gcs}
        written = pack(file, progress, stores=[name for name in asked if asked[name]])
    renderer.document(written)
    manifest = written.manifest
    renderer.line(f"Wrote {file}, sha256 {written.sha256}: Tributary {manifest.tributary}")
    renderer.line(
        f"It runs on {manifest.machine} with Python {manifest.python.rpartition('.')[0]}, which it"
        f" does not contain: unpack it, then start bin/tributary in it."
    )


def warm_up(
    config: ConfigOption = None, output: OutputOption = Output.TEXT, verbose: VerboseOption = 0
) -> None:
    """Make an archive of Java classes, from which later commands start Spark faster."""
    from operate.warm_up import warm_up as make

    renderer = Renderer(output)
    with renderer.progress() as progress:
        found = make(progress)
    renderer.document(found)
    renderer.line(
        f"{'Made' if found.made else 'Nothing to do: there is'} {found.archive},"
        f" {found.bytes >> 20} MiB"
    )


@config_app.command("schema")
def schema(
    config: ConfigOption = None, output: OutputOption = Output.TEXT, verbose: VerboseOption = 0
) -> None:
    """Print the JSON Schema of the configuration, for editors and deployment checks."""
    from cdc.config import Config

    text = json.dumps(Config.json_schema(), indent=None if output is Output.JSON else 2)
    typer.echo(text)
