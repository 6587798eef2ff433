from typing import Any

import orjson
import pytest
import yaml
from support.dashboard_site import PeopleApi, job

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.dashboard import job_objects as module
from fluxqueue.dashboard.job_objects import JobObjects, read_objects
from fluxqueue.kube.kinds import EVENTS, FLUXJOBS, JOBS, PODS

NAME = job("wrf").metadata.name


def objects(**others: Any) -> PeopleApi:
    api = PeopleApi()
    api.person("alice")
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    wrf = {
        "kind": "Job",
        "metadata": {"name": "wrf", "uid": "uid-of-wrf", "managedFields": [{"manager": "x"}]},
        "spec": {"template": template},
    }
    event = {
        "type": "Normal",
        "reason": "Waiting",
        "message": "needs 24 cpu",
        "lastTimestamp": "2026-03-02T11:00:00Z",
        "count": 3,
    }
    newer = {
        "type": "Warning",
        "reason": "Odd",
        "message": "x" * 5_000,
        "series": {"count": 7, "lastObservedTime": "2026-03-02T11:30:00Z"},
    }
    api.objects = {
        PODS.path("blue"): {"items": [{"metadata": {"name": "wrf-0", "uid": "u"}}]},
        EVENTS.path("blue"): {"items": [event, newer]},
        FLUXJOBS.path("blue", NAME): {"kind": "FluxJob", "metadata": {"name": NAME}},
        JOBS.path("blue", "wrf"): wrf,
        **others,
    }
    return api


async def read(api: PeopleApi, work: FluxJob | None = None) -> JobObjects:
    return await read_objects(api.with_token("token-of-alice"), work or job("wrf"))


async def test_everything_is_read_in_the_name_of_the_person() -> None:
    api = objects()
    found = await read(api)
    assert {who for who, _, _, _ in api.asked} == {"alice"}
    assert found.problems == []
    assert [pod.metadata.name for pod in found.pods or ()] == ["wrf-0"]
    assert [title for title, _ in found.documents] == ["Job wrf", f"FluxJob {NAME}"]
    assert found.template is not None


async def test_events_are_the_newest_first_and_bounded() -> None:
    events = (await read(objects())).events or ()
    assert [(event.reason, event.count, event.at) for event in events] == [
        ("Odd", 7, "2026-03-02T11:30:00Z"),
        ("Waiting", 3, "2026-03-02T11:00:00Z"),
    ]
    assert len(events[0].message) == 1_000
    many = {"items": [{"reason": f"r{number}"} for number in range(300)]}
    assert len((await read(objects(**{EVENTS.path("blue"): many}))).events or ()) == 50


async def test_an_answer_that_would_fill_the_memory_is_left_out_with_a_sentence() -> None:
    events = [{"metadata": {"annotations": {"a": "x" * 262_144}}} for _ in range(20)]
    pod = {"metadata": {"name": "wrf-0", "uid": "u", "annotations": {"a": "x" * 5_000_000}}}
    found = await read(
        objects(**{EVENTS.path("blue"): {"items": events}, PODS.path("blue"): {"items": [pod] * 2}})
    )
    assert found.events is None
    assert found.problems == [
        "Its Events cannot be shown: the API server's answer is too long, with more than 4 MiB."
    ]
    assert found.pods is not None, "fewer at a time"
    large = {"metadata": {"uid": "uid-of-wrf", "annotations": {"a": "x" * 5_000_000}}}
    found = await read(objects(**{JOBS.path("blue", "wrf"): large}))
    assert found.problems == [
        "Its object cannot be shown: the API server's answer is too long, with more than 4 MiB."
    ]


async def test_managed_fields_are_left_out_and_long_objects_cut() -> None:
    found = await read(
        objects(
            **{FLUXJOBS.path("blue", NAME): {"metadata": {"name": NAME}, "spec": {"text": "x y " * 50_000}}}
        )
    )
    assert "managedFields" not in found.documents[0][1]
    assert found.documents[1][1].endswith("# ... it is longer\n")
    assert len(found.documents[1][1]) < 101_000


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are written as YAML."""
    names: list[str] = []

    def dump(found: dict[str, Any], **_options: Any) -> str:
        names.append(found["metadata"]["name"])
        return ""

    monkeypatch.setattr(yaml, "safe_dump", dump)
    module._as_yaml.cache_clear()
    return names


def with_container(**container: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", **container}]}}
    return {"metadata": {"name": "wrf", "uid": "uid-of-wrf"}, "spec": {"template": template}}


@pytest.mark.parametrize(
    "large",
    [
        with_container(env=[{"name": f"N{number}", "value": "x" * 8} for number in range(30_000)]),
        with_container(args=[""] * 49_500),
        with_container(args=[""] * 2_500),
        with_container(args=["x" * 21_000]),
    ],
    ids=["environment", "empty arguments", "some empty arguments", "text"],
)
async def test_a_large_object_is_not_written_as_yaml_which_would_hold_up_everybody(
    large: dict[str, Any], dumped: list[str]
) -> None:
    text = (await read(objects(**{JOBS.path("blue", "wrf"): large}))).documents[0][1]
    assert dumped == [NAME]
    assert '"name": "c"' in text
    assert len(text) < 101_000


async def test_an_object_is_written_again_only_when_it_has_changed(dumped: list[str]) -> None:
    api = objects()
    for _ in range(3):
        await read(api)
    assert sorted(dumped) == sorted([NAME, "wrf"])
    api.objects[JOBS.path("blue", "wrf")]["metadata"]["resourceVersion"] = "2"
    await read(api)
    assert dumped.count("wrf") == 2


async def test_an_object_that_is_nested_too_deeply_is_left_out() -> None:
    nested = orjson.Fragment(b'{"metadata":{"uid":"uid-of-wrf"},"x":' + b'{"x":' * 900 + b"1" + b"}" * 901)
    found = await read(objects(**{JOBS.path("blue", "wrf"): nested}))
    assert found.problems == ["Its object cannot be shown: it is nested too deeply."]
    assert [title for title, _ in found.documents] == [f"FluxJob {NAME}"]


async def test_each_part_may_be_refused_without_the_others() -> None:
    api = objects()
    api.refused = {("alice", EVENTS.path("blue")), ("alice", JOBS.path("blue", "wrf"))}
    found = await read(api)
    assert sorted(found.problems) == ["You may not read its Events.", "You may not read its object."]
    assert len(found.pods or ()) == 1
    assert found.template is None


async def test_another_object_of_the_same_name_is_not_shown() -> None:
    found = await read(objects(**{JOBS.path("blue", "wrf"): {"metadata": {"name": "wrf", "uid": "another"}}}))
    assert found.problems == ["Its object cannot be found: it may have been deleted."]


async def test_without_an_answer_each_part_says_so() -> None:
    api = objects()
    api.failing = True
    found = await read(api)
    assert len(found.problems) == 4
    assert all("cannot be read" in problem for problem in found.problems)


async def test_a_pod_is_read_by_its_name_and_a_minicluster_by_its_number() -> None:
    api = objects(
        **{
            PODS.path("blue"): {
                "items": [
                    {"metadata": {"name": "p", "uid": "uid-of-p"}},
                    {"metadata": {"name": "p", "uid": "old"}},
                ]
            }
        }
    )
    assert [pod.metadata.uid for pod in (await read(api, job("p", kind="Pod"))).pods or ()] == ["uid-of-p"]
    assert (await read(api, job("m", kind="MiniCluster"))).pods == []
    assert len((await read(api, job("m", kind="MiniCluster", jobid=7))).pods or ()) == 2


async def test_an_object_of_an_unknown_kind_is_left_out() -> None:
    assert (await read(objects(), job("x", kind="Foo"))).template is None
