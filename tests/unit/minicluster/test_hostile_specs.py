"""Every spec is refused with a sentence or rendered, and the work for it stays small."""

from __future__ import annotations

import contextlib
import copy
import json
import tomllib
import tracemalloc
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterSpec
from fluxqueue.api.pods import PodSpec
from fluxqueue.minicluster.bounds import MOST_BROKERS
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.injection import inject, inject_patch
from fluxqueue.minicluster.injection_settings import (
    InvalidInjection,
    annotated_minicluster,
    injection_settings_of_job,
    injection_settings_of_pod,
)
from fluxqueue.minicluster.render import admitted_pods, annotated_objects, objects
from fluxqueue.minicluster.rules import find_problems

Json = dict[str, Any]
MOST_MEMORY = 32 << 20
MOST_WRITTEN = 4 << 20
LONGEST_SENTENCE = 1_001

VOLUME: Json = {
    "csiDriver": "c",
    "csiDriverAttributes": {"a": "b"},
    "secretName": "s",
    "emptyDir": True,
    "emptyDirMedium": "memory",
    "emptyDirSizeLimit": "1Gi",
    "hostPath": "/h",
    "configMapName": "m",
    "items": {"k": "p"},
    "claimName": "c",
    "path": "/data",
    "readOnly": True,
}
CONTAINER: Json = {
    "image": "app",
    "name": "app",
    "command": "lmp -in 'in file'",
    "workingDir": "/work",
    "pullAlways": True,
    "imagePullPolicy": "Always",
    "imagePullSecret": "secret",
    "ports": [80],
    "environment": {"A": "1"},
    "secrets": {"B": {"name": "s", "key": "k"}},
    "runFlux": True,
    "launcher": False,
    "batch": False,
    "batchRaw": False,
    "logs": "/tmp/out",
    "noWrapEntrypoint": False,
    "volumes": {"v": VOLUME},
    "lifeCycle": {"postStartExec": "/a", "preStopExec": "/b"},
    "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
    "securityContext": {"runAsUser": 1000},
    "commands": {
        "prefix": "time",
        "script": "",
        **dict.fromkeys(("init", "pre", "post", "workerPre", "brokerPre", "servicePre"), "echo a"),
    },
}
WHOLE: Json = {
    "containers": [
        CONTAINER,
        {**CONTAINER, "name": "side", "runFlux": False, "volumes": {"w": {**VOLUME, "path": "/w"}}},
    ],
    "services": [{"name": "db", "image": "db", "command": "serve"}],
    "network": {"headlessName": "flux-net", "disableAffinity": True},
    "jobLabels": {"a": "b"},
    "interactive": False,
    "size": 4,
    "maxSize": 8,
    "minSize": 2,
    "tasks": 8,
    "backoffLimit": 3,
    "deadlineSeconds": 60,
    "cleanup": True,
    "shareProcessNamespace": True,
    "archive": {"path": "/archive"},
    "logging": {"quiet": False, "strict": True, "debug": True, "zeromq": True, "timed": True},
    "flux": {
        "container": {
            "disable": False,
            "name": "flux-view",
            "image": "view",
            "mountPath": "/mnt/flux",
            "workingDir": "/w",
            "pythonPath": "/p",
            "resources": {"requests": {"cpu": 1}},
            "pullAlways": True,
            "imagePullSecret": "s",
            "securityContext": {"runAsUser": 0},
        },
        "arch": "arm",
        "submitCommand": "flux submit",
        "wrap": "strace",
        "connectTimeout": "2s",
        "optionFlags": "-o 'a b'",
        "minimalService": False,
        "disableSocket": False,
        "topology": "kary:2",
        "noWaitSocket": True,
        "completeWorkers": True,
        "logLevel": 7,
        "curveCert": "",
        "brokerConfig": "",
        "scheduler": {"simple": False, "queuePolicy": "easy"},
        "environment": {"PATH": "/bin:$PATH"},
        "bursting": {
            "leadBroker": {"address": "10.0.0.1", "name": "lead", "size": 2, "port": 8050},
            "hostlist": "",
            "clusters": [{"name": "more", "size": 2}],
        },
        "mungeSecret": "m",
    },
    "pod": {
        "annotations": {"a": "b"},
        "labels": {"a": "b"},
        "restartPolicy": "Never",
        "serviceAccountName": "a",
        "runtimeClassName": "r",
        "dnsPolicy": "Default",
        "automountServiceAccountToken": True,
        "nodeSelector": {"a": "b"},
        "schedulerName": "s",
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "nodeAffinity": {"disk": ["ssd"]},
        "hostIPC": True,
        "hostPID": True,
        "resources": {"cpu": "1"},
        "securityContext": {"runAsUser": 5},
    },
    "queue": "default",
    "priority": 5,
    "duration": "30m",
    "podTemplate": {
        "metadata": {"labels": {"c": "d"}, "annotations": {"e": "f"}},
        "spec": {
            "containers": [{"name": "x", "env": [{"name": "A", "value": "2"}]}],
            "volumes": [{"name": "t", "emptyDir": {}}],
        },
    },
    "restful": {"enabled": True, "port": 5000, "tokenSecret": "", "image": "rest"},
    "state": {"volume": {"claimName": "c", "path": "/state"}},
    "formTimeoutSeconds": 300,
}

TEXTS = [
    "",
    "a",
    "echo it\\'s",
    "'",
    '"',
    "\\",
    "a\\",
    "$(",
    "`",
    "a'b'",
    "\n",
    "#!x\n",
    "\x00",
    "\x7f",
    "é",
    "a[1-3]",
    "a[1-1000000]",
    "a[",
    "/",
]
LONG = [
    "a" * 65_536,
    "'" * 65_536,
    "x " * 32_768,
    "a[1-9999]" + "x" * 200,
    "a," * 30_000 + "a",
    "-n 2 " * 13_000,
    "a\n" * 32_768,
]
KEYS = [
    "metadata",
    "spec",
    "labels",
    "annotations",
    "containers",
    "initContainers",
    "volumes",
    "securityContext",
    "name",
    "requests",
    "env",
]

texts = st.sampled_from([*TEXTS, *LONG]) | st.text(max_size=6)
numbers = st.sampled_from([0, 1, -1, 2, 4, 100, 9_990, MOST_BROKERS, 65_535, 100_000, 2**31, 2**53])
leaves = st.none() | st.booleans() | numbers | texts
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | texts, inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path of every value in the spec, from the root to the leaves."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in places(each, (*path, key)))]


PLACES = places(WHOLE)[1:]


@st.composite
def specs(draw: st.DrawFn) -> Json:
    """A spec in which every field is set, and some have an unusual value."""
    spec = copy.deepcopy(WHOLE)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        holder: Any = spec
        try:
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # what stood there was replaced before
        if isinstance(holder, dict | list):
            match draw(st.integers(0, 3)):
                case 0 if isinstance(holder, dict):
                    del holder[path[-1]]
                case 1 if isinstance(holder, dict):
                    holder[draw(texts)] = holder[path[-1]]
                case 2:
                    kind = type(holder[path[-1]])
                    same = {bool: st.booleans(), int: numbers, str: texts}.get(kind, values)
                    holder[path[-1]] = draw(same)
                case _:
                    holder[path[-1]] = draw(values)
    return spec


class Spec(dict[str, Any]):
    """A spec whose representation is shortened, because some texts are long."""

    def __repr__(self) -> str:
        return f"{super().__repr__()[:5_000]}..."


def read(spec: Json) -> MiniCluster | None:
    """Return the object as the API server passes it on; None if its schema refuses it."""
    try:
        return msgspec.convert(
            {"metadata": {"name": "flux", "namespace": "ada", "uid": "u"}, "spec": spec}, MiniCluster
        )
    except msgspec.ValidationError:
        return None


def render_all(cluster: MiniCluster) -> int:
    """Return the size of everything that is rendered for a cluster, in bytes."""
    size = cluster.spec.size
    unlike = [Share(1 + place % 2, place % 3) for place in range(size)]
    written = 0
    for shares in (None, [Share(2)] * size, unlike):
        rendered = objects(cluster, certificate=None, image="queue", shares=shares, rest_token="t")
        written += sum(len(orjson.dumps(each)) for each in rendered)
        for config in (each["data"] for each in rendered if each["kind"] == "ConfigMap"):
            assert sum(len(text.encode()) for text in config.values()) <= 1 << 20
            if not cluster.spec.flux.broker_config:
                tomllib.loads(config["broker.toml"])
    small = msgspec.structs.replace(cluster, spec=msgspec.structs.replace(cluster.spec, size=1, min_size=0))
    for pod in admitted_pods(small, "queue"):
        msgspec.convert(pod["spec"], PodSpec)
    return written


def judge_and_render(spec: Json) -> None:
    cluster = read(spec)
    if cluster is None:
        return
    tracemalloc.start()
    try:
        findings = find_problems(cluster)
        written = 0 if findings.errors else render_all(cluster)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(len(sentence) < LONGEST_SENTENCE for sentence in findings.errors)
    assert most < MOST_MEMORY
    assert written < MOST_WRITTEN


def test_the_example_spec_sets_every_field() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(MiniClusterSpec)}
    assert set(WHOLE) == fields
    cluster = read({**WHOLE, "containers": [CONTAINER | {"volumes": {}}, WHOLE["containers"][1]]})
    assert cluster is not None
    assert find_problems(cluster).errors == ()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(specs().map(Spec))
def test_any_spec_is_refused_or_rendered_and_costs_little(spec: Json) -> None:
    judge_and_render(spec)


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [{"command": "echo it\\'s"}]},
        {"flux": {"bursting": {"clusters": [{"size": 100_000}] * 8}}},
        {"flux": {"bursting": {"hostlist": "a[1-1000000]"}}},
        {"flux": {"bursting": {"hostlist": "a[1-9999]" + "x" * 200}}},
        {"flux": {"bursting": {"clusters": [{"size": 9_999}]}}, "containers": [{"command": "a"}], "size": 1},
        {"size": MOST_BROKERS, "containers": [{"command": "a"}]},
        {"size": 1, "maxSize": MOST_BROKERS, "containers": [{"command": "x " * 32_768, "batch": True}]},
        {"containers": [{"command": "a b 'c'\n" * 4_096, "batch": True}]},
        {"containers": [{"command": "'" * 65_536, "batch": True}]},
        {"containers": [{"environment": {f"A{place}": "x" * 1_000 for place in range(512)}}]},
        {"podTemplate": {"spec": {"volumes": [{"name": f"v{place}"} for place in range(1_000)]}}},
    ],
)
def test_hostile_specs_are_refused_or_rendered(change: Json) -> None:
    judge_and_render({"containers": [{"command": "hostname"}], **change})


pod_specs = st.fixed_dictionaries(
    {
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["app", ""]), "command": st.lists(texts, max_size=2)}
            ),
            max_size=2,
        )
    }
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=numbers,
    annotations=st.dictionaries(
        st.sampled_from(
            [
                names.MINICLUSTER_MODE_ANNOTATION,
                names.MINICLUSTER_TASKS_ANNOTATION,
                names.MINICLUSTER_VIEW_ANNOTATION,
            ]
        ),
        texts,
    ),
    pod=pod_specs,
)
@example(size=100_000, annotations={}, pod={"containers": [{"name": "app", "command": ["a"]}]})
@example(size=MOST_BROKERS, annotations={}, pod={"containers": [{"name": "app", "command": ["a"]}]})
def test_any_annotated_job_is_refused_or_rendered_and_costs_little(
    size: int, annotations: dict[str, str], pod: Json
) -> None:
    tracemalloc.start()
    with contextlib.suppress(InvalidInjection):
        cluster = annotated_minicluster("solver", "ada", "u", size, annotations, "app")
        rendered = annotated_objects(cluster, certificate=None, shares=[Share(2)] * size)
        assert len(orjson.dumps(rendered)) < MOST_WRITTEN
        marks = injection_settings_of_job("solver", "ada", "u", annotations, "app")
        json.dumps(msgspec.to_builtins([inject(pod, marks, 0), inject_patch(pod, marks)]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MOST_MEMORY


@pytest.mark.parametrize(
    "written",
    ["", "null", "5", "[]", "{", '{"files":5}', '{"view":{"resources":' + '{"a":' * 5_000, "x" * 250_000],
    ids=lambda text: text[:30],
)
def test_an_injection_annotation_that_the_queue_did_not_write_is_refused(written: str) -> None:
    with pytest.raises(InvalidInjection) as refused:
        injection_settings_of_pod(
            ObjectMeta(name="p", annotations={names.INJECTION_ANNOTATION: written}), "app"
        )
    assert len(str(refused.value)) < LONGEST_SENTENCE
