"""How the reader finds the files of a URL on a file system of Arrow."""

from __future__ import annotations

import pyarrow.fs
import pytest

from tributary_reader.storage import ArrowStorage


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3a://bucket/lake/orders/", "bucket/lake/orders"),
        ("gs://bucket/lake/orders", "bucket/lake/orders"),
        ("hdfs://namenode:8020/lake/orders", "/lake/orders"),
        ("hdfs:///lake/orders", "/lake/orders"),
        ("viewfs://cluster/lake/orders", "/lake/orders"),
        ("abfss://data@account.dfs.core.windows.net/lake/orders", "data/lake/orders"),
        ("file:///lake/orders", "/lake/orders"),
        ("file:/lake/orders", "/lake/orders"),
        ("/lake/orders", "/lake/orders"),
    ],
)
def test_a_url_is_the_path_that_its_file_system_needs(url: str, path: str) -> None:
    assert ArrowStorage(pyarrow.fs.LocalFileSystem()).resolve(url) == path
