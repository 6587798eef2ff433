"""What is of a wrong type is refused before the first request, in one sentence; the traceback shows the
program and the client only.

The API server of these tests does not exist, so a request would be another error.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.client import Client, Handle, InvalidWork, Job, NoCluster, Pod

Use = Callable[[Any], object]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ada"}}],
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "ada", "user": {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    with Client(path) as client:
        yield client


def job(**fields: Any) -> Use:
    return lambda client: client.submit(Job(**{"name": "solver", "image": "tools", **fields}))


def term(**terms: Any) -> Use:
    return lambda client: client.submit(Job(name="solver", image="tools"), **terms)


def workload(use: Use) -> Use:
    return lambda client: use(client.workload(Handle("Job", "lab", "solver", ("u",))))


WRONG: list[tuple[str, Use, str]] = [
    ("no work", lambda client: client.submit(5), "int is no work: give a Job"),
    ("no list", lambda client: client.submit_all(5), "works: 5 is not a list"),
    ("pods", job(pods="4"), "Job solver: pods: '4' is not a whole number: write pods=4"),
    ("pods of nothing", job(pods=0), "Job solver: pods is 0: at least 1 is needed"),
    ("half a pod", job(pods=1.5), "pods: 1.5 is not a whole number"),
    ("gpus", job(gpus=True), "gpus: True is not a whole number"),
    ("retries", job(retries="3"), "retries: '3' is not a whole number: write retries=3"),
    ("ttl", job(ttl_s=-1), "ttl_s is -1"),
    ("name", job(name=5), "Job: name: 5 is not a text"),
    ("a name with capitals", job(name="My_Job"), "write my-job"),
    ("image", job(image=None), "image: None is not a text"),
    ("command", job(command=["sleep", 5]), "command: item 1 is 5, and not a text: write '5'"),
    ("no command", job(command=5), "command: 5 is not a list"),
    ("env", job(env=["A=1"]), "env: ['A=1'] is not a dictionary"),
    ("labels", job(labels="a=b"), "labels: 'a=b' is not a dictionary"),
    ("pod", job(pod=[]), "pod: [] is not a dictionary"),
    ("cpu", job(cpu="lots"), "cpu: 'lots' is no amount: write 4, 500m or 16Gi"),
    ("memory", job(memory=512), "write 512Mi or 512Gi"),
    ("a long value", job(pods="9" * 10_000), "pods: '9999"),
    ("term", term(durtion="1h"), "durtion: no such term: write queue"),
    ("duration", term(duration=5), "duration: 5 is neither a timedelta nor text"),
    ("priority", term(priority="high"), "priority: 'high' is not a whole number"),
    ("queue", term(queue=5), "queue: 5 is not a text"),
    ("after", term(after=5), "after: 5 is not a list: write a workload, or text such as 'ok:job/prepare'"),
    ("title", lambda client: client.get(5), "5 names no work: write job/NAME"),
    ("states", lambda client: client.jobs(states=5), "states: 5 is not a list"),
    ("a state", lambda client: client.jobs(states=[5]), "states: item 0 is 5"),
    (
        "wait for one",
        lambda client: client.wait(client.workload(Handle("Job", "lab", "a", ("u",)))),
        "<Job lab/a> is not a list",
    ),
    ("wait for numbers", lambda client: client.wait([5]), "works: int is no workload"),
    ("ends of numbers", lambda client: list(client.as_ended([5])), "works: int is no workload"),
    ("time-out", workload(lambda work: work.wait(timeout="1h")), "timeout: '1h' is not a number"),
    (
        "another priority",
        workload(lambda work: work.prioritize("high")),
        "priority: 'high' is not a whole number",
    ),
    ("another queue", workload(lambda work: work.move(5)), "queue: 5 is not a text"),
    ("tail", workload(lambda work: list(work.logs(tail="all"))), "tail: 'all' is not a whole number"),
]


@pytest.mark.parametrize(
    ("use", "says"), [(use, says) for _, use, says in WRONG], ids=[name for name, _, _ in WRONG]
)
def test_a_wrong_type_is_a_sentence_before_the_first_request(client: Client, use: Use, says: str) -> None:
    with pytest.raises(InvalidWork) as caught:
        use(client)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_traceback_shows_no_event_loop(client: Client) -> None:
    for use, kind in ((job(pods="4"), InvalidWork), (lambda client: client.get("job/solver"), NoCluster)):
        with pytest.raises(kind) as caught:
            use(client)
        shown = "".join(traceback.format_exception(caught.value))
        assert "asyncio" not in shown
        assert "concurrent" not in shown
        assert "async_client.py" in shown


def test_a_pod_may_have_a_longer_name_than_a_job() -> None:
    assert Pod(name="a" * 200, image="tools").manifest()["metadata"]["name"] == "a" * 200
