"""The demo's steps and their output."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from cdc.lake.write import LakeTable
from cdc.run import run_tables
from cdc.store.table_state import State
from operate.context import Services, services
from operate.demo.sessions import Sessions, sessions
from operate.demo.shop import KEYLESS, SCHEMA, ShopKind, Witness
from operate.demo.writers import Writers
from operate.lifecycle import offboard, require
from operate.onboard import onboard
from operate.render import Renderer, seconds
from operate.table_outcome import Outcome, for_each
from operate.verify.batch import verify_tables
from operate.verify.result import Verification
from schemas.table import TableId
from stack.layout import S3
from stack.local import LocalStack

if TYPE_CHECKING:
    from cdc.run import RunResult
    from cdc.runtime.progress import Progress

CONFIG = "tributary.yaml"

_WARM_UP_S = 2.0
_BETWEEN_RUNS_S = 3.0
_RUNS = 2


@dataclass
class Results:
    """The results of the demo, for ``--output json`` and the exit code.

    Args:
        shop: The shop.
        onboarded: One outcome per table, also of the table without a key, which is refused.
        runs: The incremental runs.
        verified: The result of `verify` for each replicated table.
        failures: The outcomes of tables whose onboarding or verification failed.
        transactions: Number of transactions that the writers committed, for each deed.
        seconds: Duration of each step in seconds, by the step's name.
    """

    shop: ShopKind
    onboarded: list[Outcome] = field(default_factory=list)
    runs: list[list[RunResult]] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    failures: list[Outcome] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether `failures` is empty, and each table has rows and equals its source."""
        return (
            len(self.verified) == len(self.shop.tables)
            and all(one.equal and one.rows_compared > 0 for one in self.verified)
            and not self.failures
        )

    def to_json(self) -> dict[str, Any]:
        """The demo's results as plain values."""
        return {
            "ok": self.ok,
            "source": self.shop.kind,
            "onboarded": [outcome.to_json() for outcome in self.onboarded],
            "runs": [[result.to_dict() for result in run] for run in self.runs],
            "verified": [one.to_json() for one in self.verified],
            "failures": [outcome.to_json() for outcome in self.failures],
            "transactions": self.transactions,
            "seconds": {name: round(took, 1) for name, took in self.seconds.items()},
        }


class Demo:
    """One run of the demo.

    The demo's files are in one folder.

    Args:
        folder: Holds the stack, the configuration, the state and the lake.
        renderer: The output.
        progress: Shows the progress of long work.
        shop: The shop, with the SQL for its kind of source.
        config: The configuration file to write; None for a file in the folder. An existing file
            outside the folder is not replaced.
        s3: Whether the lake is on an S3-compatible server.
    """

    def __init__(
        self,
        folder: Path,
        renderer: Renderer,
        progress: Progress,
        *,
        shop: ShopKind,
        config: Path | None = None,
        s3: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self.config = self.folder / CONFIG if config is None else config.resolve()
        self._renderer, self._progress = renderer, progress
        self._shop = shop
        self._s3 = s3
        self.results = Results(shop)

    def run(self, *, keep: bool) -> Results:
        """Run all steps of the demo; then stop the servers, unless ``keep`` is true."""
        self._refuse_to_replace()
        stack = LocalStack(self.folder / "stack", report=self._renderer.note)
        with ExitStack() as ending:
            if not keep:
                ending.callback(stack.down)
            title, kind = self._shop.title, self._shop.kind
            with self._step(f"1. Start {title} with a replica, Kafka, Connect and a registry"):
                if not self._is_as_wanted(stack):
                    stack.down(delete=True)  # a former demo's data
                stack.up(sources=[kind], optional=[S3] if self._s3 else [])
                text = stack.config_text(source=SCHEMA, kinds=[kind])
                self.config.write_text(text, encoding="utf-8")
            self.show()
        self._say_farewell(keep=keep)
        return self.results

    def _is_as_wanted(self, stack: LocalStack) -> bool:
        """Whether the stack runs, with this demo's kind of source and kind of storage."""
        if not any(server.pid for server in stack.status()):
            return False
        found = stack.addresses()
        return found.kinds == (self._shop.kind,) and (found.s3_endpoint is not None) == self._s3

    def _refuse_to_replace(self) -> None:
        if self.config.exists() and self.config.parent != self.folder:
            raise ConfigError(
                f"{self.config} already exists",
                remedy="Name another file with --config, or leave the option out: the demo then"
                " writes its configuration into its own folder.",
                field="--config",
            )

    def show(self) -> None:
        """Run and show the demo's steps 2 to 5, on the servers that the configuration names."""
        with services(self.config, self._progress) as opened:
            ((name, source),) = opened.config.sources.items()
            at_source = sessions(name, source)
            self._clean(opened)
            with self._step("2. Fill a shop with orders, and start its writers"):
                self._create(at_source)
            with Writers(at_source, self._shop.deeds, rate=self._shop.rate) as writers:
                time.sleep(_WARM_UP_S)
                with self._step("3. Onboard its tables under writes"):
                    self._onboard(opened, writers)
                if not self.results.failures:
                    with self._step("4. Change rows by hand, and run"):
                        self._change_and_run(opened, at_source)
                    with self._step("5. Verify under writes"):
                        self._verify(opened)
                self.results.transactions = writers.deeds
            self._renderer.line(
                f"Meanwhile the writers committed {sum(self.results.transactions.values()):,}"
                " transactions: "
                + ", ".join(f"{name} {n:,}" for name, n in self.results.transactions.items())
            )
            for message in writers.failures:
                self._renderer.warning(f"the database refused a writer: {message}")

    def _clean(self, opened: Services) -> None:
        """Take the tables of an earlier demo off the plan, and delete the tables' data."""
        known = [record.table for record in opened.store.tables()]
        for_each(known, lambda t: offboard(opened, t, delete_data=True), action="offboard")

    def _create(self, at_source: Sessions) -> None:
        with at_source() as session:
            for statement in (*self._shop.create, *self._shop.fill):
                session.run(statement)

    def _onboard(self, opened: Services, writers: Writers) -> None:
        before = writers.total
        self.results.onboarded = onboard(
            opened, [_table_of_shop(opened, name) for name in (*self._shop.tables, KEYLESS)]
        )
        rows = []
        for outcome in self.results.onboarded:
            if outcome.table.name == KEYLESS:
                continue
            if outcome.error is not None or outcome.state is not State.INCREMENTAL:
                self.results.failures.append(outcome)
                continue
            handoff = _handoff_offsets(opened, outcome.table)
            rows.append(
                (
                    outcome.table,
                    f"{outcome.details['rows']:,}",
                    seconds(outcome.details["seconds"]),
                    f"{handoff[0]:,}",
                    f"{handoff[1]:,}",
                    f"{handoff[1] - handoff[0]:,}",
                )
            )
        self._renderer.table(
            ("table", "rows copied", "took", "O", "H", "replayed"),
            rows,
            numbers="rows copied,took,O,H,replayed",
        )
        self._renderer.line(
            "O is the first offset that the stream applies; readers see the table from offset H on."
        )
        self._renderer.line(
            f"Meanwhile the writers committed {writers.total - before:,} transactions."
        )
        for outcome in self.results.onboarded:
            if outcome.table.name == KEYLESS:
                self._report_refusal(outcome)
            elif outcome.error is not None:
                self._renderer.error(outcome.error)

    def _report_refusal(self, outcome: Outcome) -> None:
        if outcome.error is None:
            self.results.failures.append(outcome)
            self._renderer.warning(f"{outcome.table} has no key, but `onboard` accepted it")
            return
        self._renderer.line(f"Refused, as expected: {outcome.error.message}.")

    def _change_and_run(self, opened: Services, at_source: Sessions) -> None:
        witnesses = self._shop.witnesses
        before = [self._look(opened, at_source, one, one.before) for one in witnesses]
        with at_source() as session:
            for statement in (change for witness in witnesses for change in witness.changes):
                session.run(statement)
        for number in range(_RUNS):
            if number:
                time.sleep(_BETWEEN_RUNS_S)
            self._run(opened)
        for witness, then in zip(witnesses, before, strict=True):
            now = self._look(opened, at_source, witness, witness.after)
            self._renderer.line(f"{witness.what[0].upper()}{witness.what[1:]}:")
            self._renderer.table(
                ("", f"{SCHEMA}.{witness.table} at the source", "in the lake"),
                [("before", *then), ("after", *now)],
            )

    def _run(self, opened: Services) -> None:
        names = {_table_of_shop(opened, name) for name in self._shop.tables}
        records = [record for record in opened.store.tables() if record.table in names]
        results = run_tables(
            opened.run_context, records, parallel=opened.config.spark.parallel_tables
        )
        self.results.runs.append(results)
        events = sum(result.events for result in results)
        commits = sum(result.commits for result in results)
        took = max((result.seconds for result in results), default=0.0)
        self._renderer.line(
            f"A run applied {events:,} changes in {commits} commits; the slowest table took"
            f" {seconds(took)}."
        )
        for result in results:
            if result.error is not None:
                self._renderer.warning(f"{result.table}: {result.error.message}")

    def _look(
        self, opened: Services, at_source: Sessions, witness: Witness, where: str
    ) -> tuple[str, str]:
        """Return the rows that the SQL condition ``where`` finds, as texts.

        The first row is from the source, the second from the lake.
        """
        table = _table_of_shop(opened, witness.table)
        record = require(opened, table)
        source = opened.source(table.source)
        found = source.table(table)
        settings = opened.config.table_settings(table)
        path = record.attempt.path if record.attempt is not None else ""
        lake = LakeTable(opened.spark, path, source.schema(found, settings), settings).read()
        in_lake = [name for name in witness.columns if name in lake.columns]
        names = [column.name for column in found.columns if column.name in witness.columns]
        with at_source() as session:
            ours = session.first(
                f"SELECT {', '.join(names)} FROM {SCHEMA}.{witness.table} WHERE {where}"  # noqa: S608 - fixed text
            )
        theirs = lake.where(where).select(*in_lake).first()
        return _row_as_text(names, ours), _row_as_text(in_lake, theirs)

    def _verify(self, opened: Services) -> None:
        wanted = [_table_of_shop(opened, name) for name in self._shop.tables]
        self.results.verified, failures = verify_tables(opened, wanted)
        self.results.failures += failures
        self._renderer.table(
            ("table", "result", "rows", "checked again", "up to"),
            [
                (
                    found.table,
                    "equal" if found.equal else "DIFFERENT",
                    f"{found.rows_compared:,}",
                    f"{found.checked_again:,}",
                    found.position,
                )
                for found in self.results.verified
            ],
            numbers="rows,checked again",
        )
        for outcome in self.results.failures:
            if outcome.error is not None:
                self._renderer.error(outcome.error)

    def _say_farewell(self, *, keep: bool) -> None:
        line = self._renderer.line
        line()
        line("Next steps:")
        if keep:
            line(f"  export TRIBUTARY_CONFIG={self.config}")
            line("  tributary status; tributary verify 'shop.*'; tributary path shop.orders")
            line("  tributary run --continuous        keeps the lake up to date")
            line(f"  tributary stack down --dir {self.folder / 'stack'}")
        else:
            line(
                f"  tributary demo{' --s3' * self._s3} --keep             keeps the servers running"
            )
        line(f"  {self.config}")
        if not self._s3:
            line(f"  {self.folder / 'stack' / 'lake'}   the Hudi tables")

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self._renderer.line()
        self._renderer.line(title, style="bold")
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.results.seconds[title] = took
        self._renderer.line(f"({seconds(took)})", style="dim")


def _table_of_shop(opened: Services, name: str) -> TableId:
    """Return the id of a table of the demo's shop."""
    return opened.config.table_id(f"{SCHEMA}.{name}")


def _handoff_offsets(opened: Services, table: TableId) -> tuple[int, int]:
    """Return a copy's offsets O (where the stream begins) and H (where readers begin).

    Each offset is a sum over the partitions.
    """
    attempt = require(opened, table).attempt
    if attempt is None:
        return 0, 0
    start, end = attempt.start_offsets or {}, attempt.handoff_offsets or {}
    return sum(start.values()), sum(end.values())


def _row_as_text(names: Sequence[str], row: Sequence[object] | None) -> str:
    """Return a row of the demo's shop as text, with the names of its columns."""
    if row is None:
        return "no row"
    return ", ".join(f"{name} {value}" for name, value in zip(names, row, strict=True))
