"""Sends requests to the cluster, with a time limit, retries, and errors that have a remedy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck
import stamina
from confluent_kafka.admin import ConfigResource

from cdc.errors import KafkaError
from cdc.kafka.topic_ids import share_uuids

if TYPE_CHECKING:
    from cdc.config import KafkaConfig

_log = logging.getLogger(__name__)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_RETRY = stamina.RetryingCaller(attempts=6, timeout=60.0, wait_max=4.0)
TRANSIENT = frozenset(
    {
        ck.KafkaError._TRANSPORT,
        ck.KafkaError._TIMED_OUT,
        ck.KafkaError._ALL_BROKERS_DOWN,
        ck.KafkaError._WAIT_COORD,
        ck.KafkaError._IN_PROGRESS,
        ck.KafkaError.LEADER_NOT_AVAILABLE,
        ck.KafkaError.NOT_LEADER_FOR_PARTITION,
        ck.KafkaError.REQUEST_TIMED_OUT,
        ck.KafkaError.BROKER_NOT_AVAILABLE,
        ck.KafkaError.NETWORK_EXCEPTION,
        ck.KafkaError.OFFSET_NOT_AVAILABLE,
        ck.KafkaError.NOT_CONTROLLER,
        # The topic was just created: the metadata of the client and of the broker still differ.
        ck.KafkaError.UNKNOWN_LEADER_EPOCH,
        ck.KafkaError.FENCED_LEADER_EPOCH,
    }
)
UNKNOWN_TOPIC = frozenset({ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC})
_NOT_ALLOWED = frozenset(
    {
        ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ck.KafkaError._AUTHENTICATION,
        ck.KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)


class KafkaClient:
    """The settings, the retries and the errors of all requests to one Kafka cluster.

    Args:
        config: Address of the cluster, and the login.
        timeout_s: Limit for one request, in seconds. A request that fails transiently is repeated
            up to five times, within a minute.
    """

    def __init__(self, config: KafkaConfig, *, timeout_s: float = 20.0) -> None:
        share_uuids()
        self.timeout_s = timeout_s
        self.servers = config.bootstrap_servers
        self.last_error = ""
        self.renew: Callable[[], object] | None = None
        """Refreshes the client's metadata before a request is repeated. Without a refresh, a client
        uses old leaders and an old controller for minutes, even if they are gone.
        """
        self.settings: dict[str, Any] = {
            **config.librdkafka_config(),
            "error_cb": self._remember,
            "logger": _log,
        }

    def call(
        self,
        what: str,
        request: Callable[[], Mapping[_Key, Future[_Value]]],
        *,
        ignored: frozenset[int] = frozenset(),
        **context: Any,
    ) -> dict[_Key, _Value]:
        """Send Kafka one request, and return the answer for each key, for example each topic.

        Transient failures are retried.

        Args:
            what: What Kafka is asked to do, for errors: for example ``list offsets``.
            request: Sends the request, and returns a future for each key, for example each topic.
            ignored: Codes of errors for which a key is left out of the result.
            context: Values for the context of errors, for example ``topic``.

        Raises:
            KafkaError: A key has no answer. The error names the key's topic.
        """
        answers, failed = self._call(what, request, ignored, _repeat_always, context)
        for refused in failed.values():
            raise refused
        return answers

    def call_each(
        self,
        what: str,
        request: Callable[[], Mapping[_Key, Future[_Value]]],
        *,
        ignored: frozenset[int] = frozenset(),
        others_answer: bool = False,
    ) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
        """Send Kafka one request, and return the answers, and the errors of keys without an answer.

        Args:
            what: What Kafka is asked to do, for errors: for example ``list offsets``.
            request: Sends the request, and returns a future for each key, for example each topic.
            ignored: Codes of errors for which a key is left out of both results.
            others_answer: Whether the cluster has just answered for other keys. If so, the request
                is not repeated, and the errors of keys are only returned, and never raised.

        Raises:
            KafkaError: None of several keys has an answer. Or only one key was requested, and its
                error is still transient after all repetitions. Or a request gets no reply in time.
        """
        patient = not others_answer
        answers, failed = self._call(
            what, request, ignored, _repeat_without_answers if patient else _repeat_never, {}
        )
        if patient and len(failed) > 1 and not answers:
            raise next(iter(failed.values()))
        return answers, failed

    def _call(
        self,
        what: str,
        request: Callable[[], Mapping[_Key, Future[_Value]]],
        ignored: frozenset[int],
        retried: Callable[[Mapping[_Key, _Value]], bool],
        context: Mapping[str, Any],
    ) -> tuple[dict[_Key, _Value], dict[_Key, KafkaError]]:
        """Send Kafka one request, and return the answer or the error for each key.

        If all errors are transient, and ``retried`` allows it, the request is repeated.

        Args:
            what: What Kafka is asked to do, for errors.
            request: Sends the request.
            ignored: Codes of errors for which a key is left out of both results.
            retried: Takes the answers; returns whether to repeat the request.
            context: Values for the context of errors, for example ``topic``.
        """
        tried, first = False, dict[str, Any]()

        def once() -> tuple[dict[_Key, _Value], dict[_Key, ck.KafkaError]]:
            nonlocal tried
            if tried and self.renew is not None:
                self.renew()
            tried, answers, failed = True, {}, {}
            for key, future in request().items():
                try:
                    answers[key] = future.result(timeout=self.timeout_s + 5.0)
                except ck.KafkaException as error:
                    if error.args[0].code() not in ignored:
                        failed[key] = error.args[0]
            lasting = [reason for reason in failed.values() if reason.code() not in TRANSIENT]
            if failed and not lasting and retried(answers):
                key, reason = next(iter(failed.items()))
                first.update(_topic_of_request_key(key))
                raise ck.KafkaException(reason)
            return answers, failed

        try:
            answers, failed = _RETRY(is_transient, once)
        except ck.KafkaException as error:
            raise self.refused(what, error.args[0], **{**first, **context}) from error
        except futures.TimeoutError as error:  # in Python 3.10 this is no TimeoutError
            raise KafkaError(
                f"Kafka did not answer within {self.timeout_s:.0f} s when asked to {what}",
                remedy="Check that the brokers are healthy, then run the command again.",
                **context,
            ) from error
        return answers, {
            key: self.refused(what, reason, **{**_topic_of_request_key(key), **context})
            for key, reason in failed.items()
        }

    def _remember(self, error: ck.KafkaError) -> None:
        """Store why a connection failed, for later errors.

        A request that fails because of the connection reports only a time-out.
        """
        self.last_error = error.str()
        _log.debug("Kafka client: %s", error.str())

    def refused(self, what: str, error: ck.KafkaError, **context: Any) -> KafkaError:
        """Convert an error of a broker or of the client library into a ``KafkaError``.

        Args:
            what: What Kafka was asked to do.
            error: The error.
            context: Values for the context of the result, for example ``topic``.
        """
        code, brokers = error.code(), self.servers
        topic = str(context.get("topic", ""))
        if topic and topic not in what:
            what = f"{what} (topic {topic})"
        if code in TRANSIENT:
            detail = self.last_error or error.str()
            return KafkaError(
                f"Kafka at {brokers} is unreachable when asked to {what}: {detail}",
                remedy="Check kafka.bootstrap_servers, kafka.security and that the brokers run.",
                **context,
            )
        remedy = "Look into the broker's log for the reason."
        if code in _NOT_ALLOWED:
            remedy = "Check kafka.security and this user's ACLs (see `tributary check`)."
        elif code in UNKNOWN_TOPIC:
            remedy = "Check that the topic exists; `tributary onboard` creates it."
        return KafkaError(
            f"Kafka at {brokers} refused to {what}: {error.name()}: {error.str()}",
            remedy=remedy,
            **context,
        )


def _repeat_always(_answers: Mapping[_Key, _Value]) -> bool:
    """Decide to repeat a failed request to Kafka, whatever was answered."""
    return True


def _repeat_without_answers(answers: Mapping[_Key, _Value]) -> bool:
    """Decide to repeat a failed request to Kafka only if nothing was answered."""
    return not answers


def _repeat_never(_answers: Mapping[_Key, _Value]) -> bool:
    """Decide not to repeat a failed request to Kafka, whatever was answered."""
    return False


def _topic_of_request_key(key: object) -> dict[str, str]:
    """Return the topic in a key of Kafka's answers, for an error; empty if the key has none."""
    if isinstance(key, ck.TopicPartition):
        return {"topic": key.topic}
    name = key.name if isinstance(key, ConfigResource) else key
    return {"topic": str(name)} if name else {}


def is_transient(error: Exception) -> bool:
    """Return whether a request to Kafka that failed with this error can succeed a moment later."""
    return isinstance(error, ck.KafkaException) and error.args[0].code() in TRANSIENT


def missing(topic: str) -> KafkaError:
    """Return the error for a Kafka topic that does not exist."""
    return KafkaError(
        f"topic {topic} does not exist",
        remedy="Run `tributary onboard` for its table, which creates the topic; if it was deleted,"
        " the table needs a new bootstrap.",
        topic=topic,
    )
