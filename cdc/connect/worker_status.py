"""What Kafka Connect reports about its workers, connectors and tasks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plugin:
    """A connector plugin of the Connect worker: its Java class, its type and its version."""

    name: str
    kind: str
    version: str


@dataclass(frozen=True)
class Worker:
    """The Connect worker that answered a request.

    Args:
        version: Version of Kafka Connect.
        kafka_cluster_id: Id of the worker's Kafka cluster.
        plugins: The worker's connector plugins.
        exactly_once: Whether exactly-once source support is enabled; None if this is not known
            because the worker has no Debezium plugin, which the test needs.
    """

    version: str
    kafka_cluster_id: str
    plugins: tuple[Plugin, ...]
    exactly_once: bool | None


@dataclass(frozen=True)
class FieldProblem:
    """One property of a connector's configuration, and why the Connect worker objects to it."""

    field: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class TaskStatus:
    """The state of one Connect task, with its stack trace in ``trace`` if it has failed."""

    id: int
    state: str
    worker: str
    trace: str = field(default="", repr=False)


@dataclass(frozen=True)
class ConnectorStatus:
    """The states of a connector and its tasks, as Connect names them, for example ``RUNNING``."""

    name: str
    state: str
    worker: str
    tasks: tuple[TaskStatus, ...]
    trace: str = field(default="", repr=False)

    @property
    def running(self) -> bool:
        """Whether the connector runs, has tasks, and all of its tasks run."""
        states = [self.state, *(task.state for task in self.tasks)]
        return len(states) > 1 and all(state == "RUNNING" for state in states)

    @property
    def failure(self) -> str | None:
        """The stack trace of the connector, or of its first failed task; None if nothing failed."""
        if self.state == "FAILED":
            return self.trace or "the connector failed without a trace"
        for task in self.tasks:
            if task.state == "FAILED":
                return task.trace or f"task {task.id} failed without a trace"
        return None
