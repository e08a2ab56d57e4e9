"""Calls Java from Python in few round trips.

Each call of py4j is a round trip between the two processes, and so is each look-up of a Java name:
pyspark looks up two names for a single call of ``functions.col``. Without this module, look-ups and
lists took a sixth of a small commit's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BETWEEN = "\x1f"
"""The separator between the items of a list of texts, which is sent to Java as one text."""
_TEXTS = "org.apache.commons.lang3.StringUtils"


class _KnownClass(JavaClass):  # type: ignore[misc]
    """A Java class that remembers each of its methods after the first look-up."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


class _KnownPackage(JavaPackage):  # type: ignore[misc]
    """A Java package that remembers each of its packages and classes after the first look-up."""

    def __getattr__(self, name: str) -> Any:
        return _known(self, name, super().__getattr__(name))


class _KnownView(JVMView):  # type: ignore[misc]
    """The names of a JVM's packages and classes, each remembered after the first look-up."""

    def __getattr__(self, name: str) -> Any:
        return _known(self, name, super().__getattr__(name))


def _known(owner: Any, name: str, found: Any) -> Any:
    """Return a Java package or class that remembers its names; ``owner`` stores the result."""
    if isinstance(found, JavaPackage):
        found = _KnownPackage(found._fqn, found._gateway_client, found._jvm_id)
    elif isinstance(found, JavaClass):
        found = known_class(found._fqn, found._gateway_client)
    owner.__dict__[name] = found
    return found


def known_class(name: str, client: Any) -> JavaClass:
    """Return a Java class by its full name, without a round trip."""
    return _KnownClass(name, client)


def remember_names(session: SparkSession) -> None:
    """Let py4j remember each Java name of the session's JVM after the first look-up.

    The jars of a session do not change, so a name always means the same package or class.
    """
    gateway: Any = session.sparkContext._gateway
    # pyspark's objects share this view, so its class changes in place.
    gateway.jvm.__class__ = _KnownView


def items_of(listed: Any) -> list[Any]:
    """Return the items of a Java list.

    Python's iteration over a Java list ends with an error in Java. To translate this error, pyspark
    needs 30 round trips. This function causes no such error.
    """
    return [listed.get(place) for place in range(listed.size())]


def select_sql(frame: DataFrame, *expressions: str) -> DataFrame:
    """Return the values of SQL expressions for each row, as `DataFrame.selectExpr` does.

    All expressions are sent to Java as one text, so more expressions do not take more round trips.
    If an expression has the character U+001F, `DataFrame.selectExpr` itself is called instead.
    """
    if any(_BETWEEN in one for one in expressions):  # a column's default can have any character
        return frame.selectExpr(*expressions)
    session = frame.sparkSession
    gateway: Any = session.sparkContext._gateway
    texts = known_class(_TEXTS, gateway._gateway_client)
    split = texts.splitByWholeSeparatorPreserveAllTokens
    return DataFrame(frame._jdf.selectExpr(split(_BETWEEN.join(expressions), _BETWEEN)), session)
