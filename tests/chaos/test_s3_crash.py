"""A lake on S3: commands killed amid commits and deletions, and around the pointer's change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.local import LocalStack
from stack.object_store import BUCKET
from tests.integration.rigs.postgres import own_database
from tests.integration.rigs.project import Project, killed_at
from tests.integration.rigs.s3 import S3
from tests.integration.rigs.s3 import s3 as s3

ORDERS = "public.orders"


@pytest.fixture
def project(stack: LocalStack, s3: S3, tmp_path: Path) -> Iterator[Project]:
    with own_database(stack) as database:
        # Several chunks, so that there is a commit amid the copy.
        made = Project.create(tmp_path, database, defaults={"chunk_rows": 500})
        s3.move(made)
        made.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, v int)",
            "INSERT INTO orders SELECT g, g FROM generate_series(1, 2000) g",
        )
        yield made


def change(project: Project, first: int) -> None:
    project.execute(
        f"UPDATE orders SET v = -1 WHERE id BETWEEN {first} AND {first + 9}",
        f"DELETE FROM orders WHERE id = {first + 10}",
    )


def publications(s3: S3) -> int:
    return len([one for one in s3.requests() if "PUT" in one and "_current.json" in one])


def where(project: Project) -> str:
    return project.run("path", ORDERS).expect(0).stdout.strip()


@pytest.mark.breadth
def test_commits_on_s3_that_a_kill_cuts_short_are_made_whole(project: Project) -> None:
    killed_at(project, "bootstrap.after_chunk_commit", "onboard", ORDERS)
    change(project, 1)
    project.run("onboard", ORDERS).expect(0)
    change(project, 101)
    killed_at(project, "run.in_commit", "run")
    change(project, 201)
    killed_at(project, "run.after_commit", "run")
    change(project, 301)
    project.run("run").expect(0)
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert '"rows_compared": 1996' in verified.stdout, verified.stdout


@pytest.mark.breadth
def test_a_resync_on_s3_that_is_killed_around_its_pointer_publishes_once(
    project: Project, s3: S3
) -> None:
    project.run("onboard", ORDERS).expect(0)
    first = where(project)
    killed_at(project, "resync.after_swap", "resync", ORDERS)
    assert (publications(s3), where(project)) == (1, first), "not published, and readers go on"
    change(project, 1)
    project.run("resync", ORDERS).expect(0)
    second = where(project)
    assert (publications(s3), second != first) == (2, True)

    killed_at(project, "bootstrap.after_publish", "resync", ORDERS)
    third = where(project)
    assert (publications(s3), third in (first, second)) == (3, False), "published, not recorded"
    change(project, 101)
    project.run("resync", ORDERS).expect(0)
    assert where(project) == third
    project.run("run").expect(0)
    verified = project.run("verify", ORDERS, "--output", "json").expect(0)
    assert '"rows_compared": 1998' in verified.stdout, verified.stdout

    former = second.removeprefix(f"s3a://{BUCKET}/")
    assert [key for key in s3.objects() if key.startswith(former)]
    killed_at(project, "generations.after_delete", "generations", "remove", ORDERS, "2")
    project.run("generations", "remove", ORDERS).expect(0)
    assert not [key for key in s3.objects() if key.startswith(former)]
    listed = project.run("generations", "list", ORDERS, "--output", "json").expect(0).json
    assert {one["generation"]: one["kind"] for one in listed["generations"]} == {
        3: "serving",
        1: "former",  # readers may have it open
    }
