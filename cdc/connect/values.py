"""What the REST API tells, as values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plugin:
    """A connector plugin that the worker has."""

    name: str
    kind: str
    version: str


@dataclass(frozen=True)
class Worker:
    """The worker that answers.

    Args:
        version: Version of Kafka Connect.
        kafka_cluster_id: Id of the Kafka cluster it works for.
        plugins: Its connector plugins.
        exactly_once: Whether exactly-once source support is enabled; None when the worker has no
            source connector that could tell.
    """

    version: str
    kafka_cluster_id: str
    plugins: tuple[Plugin, ...]
    exactly_once: bool | None

    def plugin(self, name: str) -> Plugin | None:
        """The plugin of that class, or None."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)


@dataclass(frozen=True)
class FieldProblem:
    """What the worker has against one property of a connector configuration."""

    field: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class TaskStatus:
    """One task: its state and, when it failed, the trace."""

    id: int
    state: str
    worker: str
    trace: str = field(default="", repr=False)


@dataclass(frozen=True)
class ConnectorStatus:
    """A connector and its tasks."""

    name: str
    state: str
    worker: str
    tasks: tuple[TaskStatus, ...]
    trace: str = field(default="", repr=False)

    @property
    def running(self) -> bool:
        """Whether the connector and at least one task run, and none does not."""
        states = [self.state, *(task.state for task in self.tasks)]
        return len(states) > 1 and all(state == "RUNNING" for state in states)

    @property
    def failure(self) -> str | None:
        """The trace of what failed, or None."""
        if self.state == "FAILED":
            return self.trace or "the connector failed without a trace"
        for task in self.tasks:
            if task.state == "FAILED":
                return task.trace or f"task {task.id} failed without a trace"
        return None
