"""Reads where `tributary` is from a connection of Airflow, and runs its commands for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException

from tributary_airflow.command import STOP_S, Program
from tributary_airflow.process import Ran, Running

DEFAULT_CONNECTION = "tributary_default"
_TEXTS = ("binary", "working_directory", "config")
_KNOWN = frozenset({*_TEXTS, "messages", "stop_seconds"})


class TributaryHook(BaseHook):
    """Runs the command `tributary` of a connection of type ``tributary``.

    The connection has no secret. Its extra names ``binary`` (default: tributary), ``config`` (the
    path of tributary.yaml), ``working_directory``, ``messages`` (whether messages of errors, which
    can quote values of rows, reach the logs) and ``stop_seconds`` (60). tributary.yaml refers to
    secrets in files and in the environment of the worker.

    Args:
        conn_id: The connection.
    """

    conn_name_attr = "tributary_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "tributary"
    hook_name = "Tributary"

    def __init__(self, conn_id: str = DEFAULT_CONNECTION) -> None:
        super().__init__()
        self.conn_id = conn_id
        self._running: Running | None = None

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return which fields the form of a connection shows: only the extra."""
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {},
            "placeholders": {
                "extra": '{"binary": "/opt/tributary/bin/tributary", "config": "/etc/t.yaml"}'
            },
        }

    def get_conn(self) -> Program:
        """Return the program that the connection names.

        Raises:
            AirflowFailException: The connection has something that does not belong there, or a
                value of a wrong type.
        """
        found = self.get_connection(self.conn_id)
        fields = ("host", "login", "password", "port")
        given = [name for name in fields if getattr(found, name, None)]
        return program(self.conn_id, found.extra_dejson, given)

    def run(self, *words: str) -> Ran:
        """Run a command to its end; its progress goes to the log of the task.

        Raises:
            AirflowFailException: The connection cannot be used, or names a working directory that
                this worker lacks.
        """
        known = self.get_conn()
        if known.directory is not None and not Path(known.directory).is_dir():
            raise AirflowFailException(
                f"connection {self.conn_id}: its working_directory is no folder on this worker."
                " What to do: mount it there, or correct the connection."
            )
        self.log.info("tributary %s", " ".join(words))
        self._running = Running(known, words, self.log.info)
        return self._running.run()

    def stop(self) -> None:
        """Forward SIGTERM to the command that runs now, and wait until it has ended."""
        if self._running is not None:
            self._running.stop()


def program(conn_id: str, extra: Mapping[str, Any], given: list[str]) -> Program:
    """Return the program that the extra of a connection names.

    Args:
        conn_id: The connection, for errors.
        extra: Its extra.
        given: Other fields of the connection that are set.

    Raises:
        AirflowFailException: The connection has something that does not belong there, or a value of
            a wrong type. The error names the field, and does not show its value.
    """
    unknown = sorted(set(extra) - _KNOWN)
    if given or unknown:
        raise AirflowFailException(
            f"connection {conn_id}: {', '.join([*given, *unknown])} does not belong there."
            f" What to do: leave only {', '.join(sorted(_KNOWN))} in its extra; secrets are"
            " references in tributary.yaml, to files or to the environment of the worker."
        )
    wrong = [name for name in _TEXTS if not isinstance(extra.get(name, ""), str)]
    stop_s = extra.get("stop_seconds", STOP_S)
    wrong += [] if _is_seconds(stop_s) else ["stop_seconds"]
    wrong += [] if isinstance(extra.get("messages", False), bool) else ["messages"]
    if wrong:
        raise AirflowFailException(
            f"connection {conn_id}: {', '.join(wrong)} has a wrong type. What to do: paths are"
            " texts, messages is true or false, and stop_seconds is a positive number."
        )
    paths = {name: str(Path(extra[name]).expanduser()) for name in _TEXTS if extra.get(name)}
    return Program(
        binary=paths.get("binary", "tributary"),
        directory=paths.get("working_directory"),
        config=paths.get("config"),
        messages=extra.get("messages", False),
        stop_s=float(stop_s),
    )


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
