"""The options that every command has, and the output of an error that ends a command."""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cdc.store.actor import name_command
from operate.exit_codes import ExitCode, requires_bootstrap
from operate.render import Output, Renderer
from schemas.errors import TributaryError
from schemas.redaction import redact

_PACKAGES = ("schemas", "cdc", "bootstrap", "operate", "stack")
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass
class Invocation:
    """The output format and the verbosity with which the running command prints an error."""

    output: Output = Output.TEXT
    verbosity: int = 0


class SourceKindOption(str, Enum):
    """The kinds of source, as values of a command's option."""

    POSTGRES = "postgres"
    MYSQL = "mysql"
    MARIADB = "mariadb"


class Commands(TyperGroup):
    """The group of all commands.

    If a command fails, the group prints the error with its remedy, and with ``-v`` also the
    traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if it fails, print its error and exit with a nonzero code."""
        ctx.obj = Invocation()
        try:
            return super().invoke(ctx)
        except TributaryError as error:
            code = ExitCode.NEEDS_BOOTSTRAP if requires_bootstrap(error) else ExitCode.ERROR
            _show_error(error, ctx.obj)
        except Exception as error:  # an unforeseen one is shown like ours, not as a traceback
            if _is_typers_own(error):
                raise
            code = ExitCode.ERROR
            _show_error(_unexpected_error(error), ctx.obj)
        raise typer.Exit(code)


def _remember_output(ctx: typer.Context, value: Output) -> Output:
    """Remember the output format, and the command's name for the state store's histories."""
    ctx.obj.output = value
    name_command(" ".join(ctx.command_path.split()[1:]))
    return value


def _remember_verbosity(ctx: typer.Context, value: int) -> int:
    """Remember how often a command has the option ``-v``, and configure its log messages."""
    ctx.obj.verbosity = value
    configure_logging(value)
    return value


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file. Default: $TRIBUTARY_CONFIG, or ./tributary.yaml.",
        metavar="FILE",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        help="text for people; json for programs, one document per line.",
        callback=_remember_output,
        is_eager=True,
    ),
]
VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="Print more: -v logs and tracebacks, -vv debug logs.",
        callback=_remember_verbosity,
        is_eager=True,
        show_default=False,
        metavar="",
    ),
]


def configure_logging(verbosity: int) -> None:
    """Send a command's log messages to stderr; the number of options ``-v`` sets their level.

    Args:
        verbosity: 0 for warnings and errors; 1 adds information; 2 or more adds debug messages.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Stderr)]:
        root.removeHandler(handler)
    root.addHandler(_Stderr())
    level = _LEVELS[min(verbosity, len(_LEVELS) - 1)]
    for package in _PACKAGES:
        logging.getLogger(package).setLevel(level)
    # stamina logs each retry. Without -v, only the final result is worth a message.
    logging.getLogger("stamina").setLevel(level if verbosity else logging.ERROR)


class _Stderr(logging.Handler):
    """Writes log messages without secrets to the current ``sys.stderr``.

    The handler looks up ``sys.stderr`` for each message, since a progress bar replaces
    ``sys.stderr`` while the bar is on the terminal.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(redact(self.format(record)) + "\n")


def _show_error(error: TributaryError, invocation: Invocation) -> None:
    """Print a command's error; with ``-v``, also its traceback."""
    if invocation.verbosity:
        cause = error.__cause__ if isinstance(error, _InternalError) else error
        lines = traceback.format_exception(cause or error)
        sys.stderr.write(redact("".join(lines)))
    Renderer(invocation.output).error(error)


class _InternalError(TributaryError):
    """An unforeseen error of a command; ``__cause__`` is the original exception."""


def _unexpected_error(error: Exception) -> _InternalError:
    """Return a command's unforeseen exception as an error with a remedy and without secrets."""
    text = redact(str(error)).strip().splitlines()
    found = _InternalError(
        f"unexpected {type(error).__name__}: {text[0] if text else 'no message'}",
        remedy="Run the command again with -v, and report its output.",
    )
    found.__cause__ = error
    return found


def _is_typers_own(error: Exception) -> bool:
    """Whether typer handles the exception itself: Exit, Abort, wrong usage, a closed pipe."""
    return isinstance(error, (typer.Exit, typer.Abort, BrokenPipeError, EOFError)) or hasattr(
        error, "exit_code"
    )
