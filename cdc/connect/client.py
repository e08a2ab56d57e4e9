"""The client of Kafka Connect's REST API. Each wait has a time limit; each error has a remedy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from cdc.connect import failures
from cdc.connect.ownership import ConnectorOwner
from cdc.connect.rest import RestClient
from cdc.connect.worker_status import (
    ConnectorStatus,
    FieldProblem,
    Plugin,
    TaskStatus,
    Worker,
)
from cdc.errors import ConnectError
from cdc.runtime.progress import shown_as
from cdc.runtime.waiting import wait_while

if TYPE_CHECKING:
    from cdc.config import ConnectConfig
    from cdc.runtime.progress import Progress

_POLL_S = 0.1
_TO_RUN = "to run"
_RESTART_S = 5.0
_ASLEEP = frozenset({"STOPPED", "PAUSED"})
_DEBEZIUM = "io.debezium.connector."

_log = logging.getLogger(__name__)


class ConnectClient:
    """A client of one Kafka Connect cluster. Safe to share among threads.

    Before each change of a connector, the client checks that no other installation made the
    connector. Without this check, two installations with the same names on one cluster would change
    each other's connectors.

    Args:
        config: Address of the cluster's REST API, and the login.
        request_timeout_s: Limit for one request, in seconds.
        owner: The installation that makes and changes connectors; if None, connectors are neither
            marked with their owner nor checked for it.
    """

    def __init__(
        self,
        config: ConnectConfig,
        *,
        request_timeout_s: float = 30.0,
        owner: ConnectorOwner | None = None,
    ) -> None:
        self.owner = owner or ConnectorOwner()
        self._timeout_s = float(config.timeout_s)
        self._rest = RestClient(config, request_timeout_s=request_timeout_s)

    def close(self) -> None:
        """Close the connections to Kafka Connect."""
        self._rest.close()

    def plugins(self) -> list[Plugin]:
        """Return the connector plugins that are installed on the Connect worker."""
        answer = self._rest.ask("GET", "connector-plugins")
        return [
            Plugin(str(item["class"]), str(item.get("type", "")), str(item.get("version", "")))
            for item in answer.json()
        ]

    def worker(self) -> Worker:
        """Return the Connect worker's version and plugins, and whether exactly-once is enabled.

        The REST API does not report whether exactly-once is enabled. So this method asks the worker
        to validate a configuration that requires exactly-once. A worker without exactly-once
        refuses the configuration.
        """
        root = self._rest.ask("GET", "").json()
        plugins = tuple(self.plugins())
        exactly_once = None
        # The setting is the worker's, so the configuration of any connector shows it.
        ours = [one.name for one in plugins if one.name.startswith(_DEBEZIUM)]
        if ours:
            exactly_once = self._exactly_once(ours[0])
        return Worker(
            version=str(root.get("version", "")),
            kafka_cluster_id=str(root.get("kafka_cluster_id", "")),
            plugins=plugins,
            exactly_once=exactly_once,
        )

    def names(self) -> list[str]:
        """Return the names of all of Connect's connectors, sorted."""
        return sorted(str(name) for name in self._rest.ask("GET", "connectors").json())

    def configs(self) -> dict[str, dict[str, str]]:
        """Return each connector's configuration, by name, with references in place of secrets."""
        found = self._rest.ask("GET", "connectors?expand=info").json()
        return {
            str(name): {str(key): str(value) for key, value in one["info"]["config"].items()}
            for name, one in found.items()
        }

    def connector(self, name: str) -> dict[str, str] | None:
        """Return a connector's configuration, with references in place of secrets.

        The result is None if the connector does not exist.
        """
        answer = self._rest.ask("GET", f"connectors/{quote(name, safe='')}/config", missing_ok=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return {str(key): str(value) for key, value in answer.json().items()}

    def validate(self, config: Mapping[str, str]) -> list[FieldProblem]:
        """Ask the Connect worker to validate a configuration, and return the worker's objections.

        For the validation, the worker connects to the source database.

        Raises:
            ConnectError: The worker is unreachable, lacks the plugin, or refuses the request.
        """
        plugin = config["connector.class"]
        path = f"connector-plugins/{quote(plugin, safe='')}/config/validate"
        answer = self._rest.ask("PUT", path, body=dict(config))
        found = []
        for entry in answer.json().get("configs", ()):
            problems = tuple(str(text) for text in (entry["value"] or {}).get("errors", ()))
            if problems:
                found.append(FieldProblem(str(entry["value"]["name"]), problems))
        return found

    def put_connector(
        self, name: str, config: Mapping[str, str], *, progress: Progress | None = None
    ) -> bool:
        """Create the connector in Connect, or change its configuration.

        An existing connector is stopped before the change and resumed after it, so that no task
        still runs with the former configuration. If the connector already has the configuration,
        nothing is done.

        Returns:
            Whether the connector was created, or its configuration was changed.

        Raises:
            ConnectError: The worker refuses the configuration; the error names each wrong property.
        """
        self.require_own(name)
        return self._put(name, {**config, **self.owner.mark}, progress)

    def require_own(self, name: str) -> None:
        """Check that no other installation made a connector.

        Raises:
            OtherConnectorError: Another installation made the connector.
        """
        existing = self.connector(name) if self.owner.mark else None
        if existing is not None and (error := self.owner.other(existing)) is not None:
            raise error

    def take_over(self, name: str, *, progress: Progress | None = None) -> bool:
        """Take over a connector; return False if no other installation has made the connector."""
        existing = self.connector(name)
        if existing is None or self.owner.other(existing) is None:
            return False
        _log.warning("connector %s of another installation is taken over", name)
        return self._put(name, {**existing, **self.owner.mark}, progress)

    def _put(self, name: str, config: Mapping[str, str], progress: Progress | None) -> bool:
        """Do what `put_connector` does, also with a connector that another installation made."""
        wanted = {**config, "name": name}
        existing = self.connector(name)
        if existing == wanted:
            return False
        problems = self.validate(wanted)
        if problems:
            listed = "; ".join(f"{item.field}: {' '.join(item.problems)}" for item in problems)
            raise ConnectError(
                f"Kafka Connect refuses connector {name}: {listed}",
                remedy=failures.remedy(listed, "Correct the named properties."),
                connector=name,
                field=problems[0].field,
            )
        if existing is not None:
            self._stop(name, None, progress)
        self._rest.ask("PUT", f"connectors/{quote(name, safe='')}/config", body=wanted)
        if existing is not None:
            self._rest.ask("PUT", f"connectors/{quote(name, safe='')}/resume")
        return True

    def status(self, name: str) -> ConnectorStatus | None:
        """Return the state of a connector and its tasks; None if the connector does not exist."""
        answer = self._rest.ask("GET", f"connectors/{quote(name, safe='')}/status", missing_ok=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        document = answer.json()
        connector = document["connector"]
        return ConnectorStatus(
            name=name,
            state=str(connector["state"]),
            worker=str(connector.get("worker_id", "")),
            trace=str(connector.get("trace", "")),
            tasks=tuple(
                TaskStatus(
                    id=int(task["id"]),
                    state=str(task["state"]),
                    worker=str(task.get("worker_id", "")),
                    trace=str(task.get("trace", "")),
                )
                for task in document.get("tasks", ())
            ),
        )

    def wait_running(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ConnectorStatus:
        """Wait until the connector and its tasks run with the present configuration.

        Args:
            name: The connector.
            timeout_s: Limit for the wait, in seconds; ``connect.timeout_s`` if None.
            progress: Shows the wait.

        Raises:
            ConnectError: The connector or a task has failed, and the error names the cause; or the
                limit has passed.
        """

        def ready(status: ConnectorStatus | None) -> bool:
            self._refuse_failed(status)
            return status is not None and status.running and self._tasks_current(name)

        return self._wait_for_status(name, _TO_RUN, ready, timeout_s, progress)

    def require_sound(self, name: str) -> None:
        """Check once that neither the connector nor one of its tasks has failed.

        Raises:
            ConnectError: The connector or a task has failed. The error names the cause.
        """
        self._refuse_failed(self.status(name))

    def restart(self, name: str, *, only_failed: bool = True) -> None:
        """Restart a connector and its tasks.

        The method returns when Connect no longer reports the failure from before the restart. If
        the connector fails again in the same way, the method returns after a few seconds.

        Args:
            name: The connector.
            only_failed: Whether to restart only what has failed: the connector itself, or its
                tasks.
        """
        self.require_own(name)
        before = self.status(name)
        query = f"includeTasks=true&onlyFailed={str(only_failed).lower()}"
        self._rest.ask("POST", f"connectors/{quote(name, safe='')}/restart?{query}")
        if before is None or before.failure is None:
            return

        def failed_as_before() -> bool:
            now = self.status(name)
            return now is not None and now.failure == before.failure

        wait_while(failed_as_before, timeout_s=_RESTART_S, poll_s=_POLL_S)

    def pause(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> None:
        """Pause the connector, and wait until it and all of its tasks are paused.

        The tasks of a paused connector still exist.
        """
        self.require_own(name)
        self._rest.ask("PUT", f"connectors/{quote(name, safe='')}/pause")

        def paused(status: ConnectorStatus | None) -> bool:
            return status is not None and all(
                state == "PAUSED"
                for state in (status.state, *(task.state for task in status.tasks))
            )

        self._wait_for_status(name, "to pause", paused, timeout_s, progress)

    def resume(self, name: str) -> None:
        """Resume a paused or stopped connector."""
        self.require_own(name)
        self._rest.ask("PUT", f"connectors/{quote(name, safe='')}/resume")

    def wake(self, name: str) -> bool:
        """Resume a connector if it is stopped or paused.

        If a process dies in the middle of `put_connector`, the connector stays stopped. A later
        `put_connector` with the same configuration does not resume the connector.

        Returns:
            Whether the connector was stopped or paused.
        """
        status = self.status(name)
        if status is None or status.state not in _ASLEEP:
            return False
        _log.info("connector %s is %s and is resumed", name, status.state)
        self.resume(name)
        return True

    def stop(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> None:
        """Stop the connector, and wait until its tasks are gone.

        Connect keeps the connector's configuration.
        """
        self.require_own(name)
        self._stop(name, timeout_s, progress)

    def _stop(self, name: str, timeout_s: float | None, progress: Progress | None) -> None:
        self._rest.ask("PUT", f"connectors/{quote(name, safe='')}/stop")
        self._wait_for_status(
            name,
            "to stop",
            lambda status: status is not None and status.state == "STOPPED" and not status.tasks,
            timeout_s,
            progress,
        )

    def delete(
        self, name: str, *, forget_offsets: bool = True, progress: Progress | None = None
    ) -> bool:
        """Delete a connector from Connect, and return whether the connector existed.

        Args:
            name: The connector.
            forget_offsets: Whether to delete the connector's stored position, too. If the position
                is not deleted, a new connector of the same name starts at this position, even if
                the slot does not retain the log from there on.
            progress: Shows the wait.
        """
        if self.status(name) is None:
            return False
        self.require_own(name)
        if forget_offsets:
            self._stop(name, None, progress)
            self._rest.ask("DELETE", f"connectors/{quote(name, safe='')}/offsets")
        self._rest.ask("DELETE", f"connectors/{quote(name, safe='')}", missing_ok=True)
        if wait_while(lambda: self.status(name), timeout_s=self._timeout_s, poll_s=_POLL_S):
            raise ConnectError(
                f"connector {name} was deleted but still there after {self._timeout_s:.0f} s",
                remedy="Look into the log of the Connect worker.",
                connector=name,
            )
        return True

    def offset(self, name: str) -> Mapping[str, Any] | None:
        """Return the source offset that Connect has stored for a connector, as Debezium wrote it.

        The result is None if Connect has stored no offset, or if the connector does not exist.
        """
        stored = self._stored(name)
        return None if stored is None else stored.get("offset") or {}

    def change_offset(
        self, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        """Replace the source offset that Connect has stored for a connector.

        The connector is stopped before the change and resumed after it, even if the change fails.
        If no offset is stored, nothing is replaced.

        Args:
            name: The connector.
            change: Takes the stored offset; returns the new one.
        """
        try:
            self.stop(name)
            if (stored := self._stored(name)) is not None:
                changed = {**stored, "offset": dict(change(stored.get("offset") or {}))}
                path = f"connectors/{quote(name, safe='')}/offsets"
                self._rest.ask("PATCH", path, body={"offsets": [changed]})
        finally:
            self.resume(name)

    def _stored(self, name: str) -> Mapping[str, Any] | None:
        """Return the stored source partition and offset from which a Debezium connector continues.

        Connect can list several source partitions: it keeps the partition of a deleted connector,
        and a later connector of the same name has another partition if the topic prefix differs.
        The result is None if nothing is stored for the connector's present topic prefix.
        """
        settings = self.connector(name)
        path = f"connectors/{quote(name, safe='')}/offsets"
        answer = self._rest.ask("GET", path, missing_ok=True)
        if settings is None or answer.status_code == httpx.codes.NOT_FOUND:
            return None
        prefix = settings.get("topic.prefix")
        stored: list[dict[str, Any]] = answer.json().get("offsets", ())
        return next((one for one in stored if one["partition"].get("server") == prefix), None)

    def _exactly_once(self, plugin: str) -> bool:
        """Return whether the worker accepts a configuration that requires exactly-once support."""
        probe = {
            "name": "tributary-probe",
            "connector.class": plugin,
            "exactly.once.support": "required",
        }
        path = f"connector-plugins/{plugin}/config/validate"
        answer = self._rest.send("PUT", path, probe)
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and "null" in answer.text:
            return False  # some workers fail with an error of their own if the support is missing
        if answer.status_code != httpx.codes.OK:
            raise self._rest.refused(answer, "PUT", path)
        objections = [
            value["errors"]
            for entry in answer.json().get("configs", ())
            if (value := entry["value"] or {}).get("name") == "exactly.once.support"
        ]
        return not any(objections)

    def _tasks_current(self, name: str) -> bool:
        """Return whether all tasks of a connector have the connector's present configuration."""
        wanted = self.connector(name) or {}
        answer = self._rest.ask("GET", f"connectors/{quote(name, safe='')}/tasks", missing_ok=True)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return False
        tasks = [task["config"] for task in answer.json()]
        return bool(tasks) and all(
            task.get(key) == value for task in tasks for key, value in wanted.items()
        )

    def _wait_for_status(
        self,
        name: str,
        what: str,
        ready: Callable[[ConnectorStatus | None], bool],
        timeout_s: float | None,
        progress: Progress | None,
    ) -> ConnectorStatus:
        """Wait until a connector has the wanted status, and return this status.

        Args:
            name: The connector.
            what: The aim of the wait in words, for messages, for example ``to run``.
            ready: Takes a status, or None if the connector does not exist; returns whether this is
                the wanted status. An error that ``ready`` raises ends the wait.
            timeout_s: Limit for the wait, in seconds; ``connect.timeout_s`` if None.
            progress: Shows the wait.

        Raises:
            ConnectError: The limit has passed.
        """
        bound = self._timeout_s if timeout_s is None else timeout_s
        status: ConnectorStatus | None = None

        def other() -> str:
            nonlocal status
            status = self.status(name)
            return "" if ready(status) else _describe_states(status)

        with shown_as(f"wait for connector {name} {what}", progress) as task:
            seen = wait_while(other, timeout_s=bound, poll_s=_POLL_S, task=task)
            if status is not None and not seen:
                return status
            remedy = (
                "Look into the log of the Connect worker, and raise connect.timeout_s if it is"
                " slow."
            )
            if what == _TO_RUN and status is not None and status.state in _ASLEEP:
                remedy = "Run `tributary retry` for one of its tables, which resumes it."
            raise ConnectError(
                f"connector {name} did not {what.removeprefix('to ')} within {bound:.0f} s: {seen}",
                remedy=remedy,
                connector=name,
            )

    def _refuse_failed(self, status: ConnectorStatus | None) -> None:
        if status is not None and status.failure is not None:
            raise self._failed_task_error(status, status.failure)

    def _failed_task_error(self, status: ConnectorStatus, trace: str) -> ConnectError:
        worker = next((t.worker for t in status.tasks if t.state == "FAILED"), status.worker)
        return ConnectError(
            f"connector {status.name} failed on worker {worker}: {failures.explain(trace)}",
            remedy=failures.remedy(
                trace,
                "Correct the cause, then run `tributary retry`, which restarts failed tasks.",
            ),
            connector=status.name,
            worker=worker,
        )


def _describe_states(status: ConnectorStatus | None) -> str:
    """Describe the states of a connector and its tasks in Kafka Connect, for a message."""
    if status is None:
        return "the connector does not exist yet"
    tasks = ", ".join(f"task {task.id} {task.state}" for task in status.tasks) or "no tasks"
    return f"connector {status.state}, {tasks}"
