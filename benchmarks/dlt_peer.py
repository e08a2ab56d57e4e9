"""dlt with ConnectorX: one table to Parquet on local disk; prints the seconds that it took.

Runs in an environment with the dependency group ``bench``: ``dlt_peer.py FOLDER TABLE``, with the
database's URL in ``BENCH_DSN``. Imports and a first small pipeline do not count: the other sides
are warm, too.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"

import dlt
from dlt.sources.sql_database import sql_table


def load(folder: Path, table: str, *, limit: bool) -> float:
    resource = sql_table(
        credentials=os.environ["BENCH_DSN"],
        schema="public",
        table=table,
        backend="connectorx",
        query_adapter_callback=(lambda query, _: query.limit(10)) if limit else None,
    )
    pipeline = dlt.pipeline(
        pipeline_name=f"bench_{'warm' if limit else 'full'}",
        pipelines_dir=str(folder / "work"),
        destination=dlt.destinations.filesystem(bucket_url=(folder / "out").as_uri()),
        dataset_name="warm" if limit else "full",
    )
    start = time.perf_counter()
    pipeline.run(resource, loader_file_format="parquet", write_disposition="replace")
    return time.perf_counter() - start


if __name__ == "__main__":
    where, name = Path(sys.argv[1]), sys.argv[2]
    load(where, name, limit=True)
    print(load(where, name, limit=False))
