"""One odd object does not keep the others of a list from being read."""

import asyncio
import json
from decimal import Decimal

import msgspec
import pytest

from fluxqueue.api.clusterobjects import DaemonSet, Event, ScaledWorkload
from fluxqueue.api.dependencies import InvalidDependencies, parse_dependencies
from fluxqueue.api.devices import ResourceClaim, ResourceClaimTemplate
from fluxqueue.api.disruptionbudgets import PodDisruptionBudget
from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.api.jobs import Job
from fluxqueue.api.metadata import NamedObject
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.objectsizes import is_cut
from fluxqueue.api.pods import Pod
from fluxqueue.api.requests import pod_requests
from fluxqueue.api.storage import PersistentVolumeClaim
from fluxqueue.api.storedjson import StoredJson, plain
from fluxqueue.kube import decoding
from fluxqueue.kube.decoding import decode, decode_page, decode_page_in_turns
from fluxqueue.kube.errors import Undecodable
from fluxqueue.minicluster.rules import find_problems

DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000


def listed(name: str, template: str = "{}") -> str:
    spec = f'{{"containers":[{{"command":"a"}}],"podTemplate":{{"spec":{template}}}}}'
    return f'{{"metadata":{{"name":"{name}","namespace":"ada"}},"spec":{spec}}}'


def test_an_object_that_is_nested_too_deeply_is_decoded_without_its_inner_part() -> None:
    page = decode_page(
        f'{{"metadata":{{}},"items":[{listed("one")},{listed("deep", DEEP)}]}}'.encode(), MiniCluster, "list"
    )
    assert [each.metadata.name for each in page.items] == ["one", "deep"]
    assert find_problems(page.items[0]).errors == ()
    assert "nested more than 32 deep" in find_problems(page.items[1]).errors[0]
    assert decode(listed("deep", DEEP).encode(), MiniCluster, "get").metadata.name == "deep"


def test_an_object_that_does_not_fit_is_left_out_and_named() -> None:
    body = {
        "metadata": {},
        "items": [
            {"metadata": {"name": "odd", "namespace": "ada"}, "spec": {"size": "four"}},
            json.loads(listed("one")),
        ],
    }
    page = decode_page(json.dumps(body).encode(), MiniCluster, "list")
    assert [each.metadata.name for each in page.items] == ["one"]
    assert ("ada", "odd") in page.undecodable


def pod(message: str) -> str:
    return json.dumps(
        {
            "metadata": {"name": "p", "annotations": {"fluxqueue/after": "\x1b[2J"}},
            "status": {"message": message},
        }
    )


def test_control_characters_of_what_is_stored_or_shown_become_pictures() -> None:
    one = decode(pod("out\0\tof\nmemory").encode(), Pod, "get")
    (listed_one,) = decode_page(
        f'{{"metadata":{{}},"items":[{pod("out" + chr(0))}]}}'.encode(), Pod, "list"
    ).items
    assert one.status.message == "out\u2400\tof\nmemory"
    assert one.metadata.annotation("fluxqueue/after") == "\u241b[2J"
    assert listed_one.status.message == "out\u2400"


def test_the_spec_of_a_minicluster_is_kept_as_written_and_its_metadata_is_not() -> None:
    text = (
        listed("one")
        .replace('"command":"a"', r'"command":"printf \u001b[1m"')
        .replace('"ada"', r'"ada","annotations":{"fluxqueue/after":"\u0000"}')
    )
    (other,) = decode_page(f'{{"metadata":{{}},"items":[{text}]}}'.encode(), MiniCluster, "list").items
    for each in (decode(text.encode(), MiniCluster, "get"), other):
        assert each.spec.containers[0].command == "printf \x1b[1m"
        assert each.metadata.annotation("fluxqueue/after") == "\u2400"


def test_a_minicluster_with_a_nul_is_refused_with_the_field() -> None:
    bad = decode(listed("one").replace('"command":"a"', r'"command":"a\u0000"').encode(), MiniCluster, "get")
    (problem,) = find_problems(bad).errors
    assert problem.startswith("spec.containers[0].command contains a NUL character")


def test_text_that_is_not_utf_8_is_an_error_of_the_response() -> None:
    with pytest.raises(Undecodable, match="not UTF-8"):
        decode(b'{"metadata":{"name":"\xff"}}', Pod, "get")


LARGE = {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 1_000, "team/note": "x"}
READ = {"fluxqueue/duration": "1h", "kueue.x-k8s.io/podset-slice-size": "4"}


@pytest.mark.parametrize("of", [Job, ScaledWorkload])
def test_annotations_that_nobody_reads_are_dropped_from_objects_and_templates(
    of: type[Job] | type[ScaledWorkload],
) -> None:
    template = {"metadata": {"annotations": LARGE}}
    text = json.dumps(
        {"metadata": {"name": "a", "annotations": {**LARGE, **READ}}, "spec": {"template": template}}
    )
    (listed_one,) = decode_page(f'{{"metadata":{{}},"items":[{text}]}}'.encode(), of, "list").items
    for each in (decode(text.encode(), of, "get"), listed_one):
        assert each.metadata.annotations == READ
        assert each.spec.template.metadata.annotations == {}, (
            "not None: there are annotations, which a patch must not replace"
        )


def test_the_annotations_of_pods_that_are_read_stay() -> None:
    kept = {
        "batch.kubernetes.io/job-completion-index": "3",
        "scheduling.k8s.io/group-name": "g",
        "fluxqueue/allocation": "7",
    }
    assert (
        decode(
            json.dumps({"metadata": {"annotations": {**kept, **LARGE}}}).encode(), Pod, "get"
        ).metadata.annotations
        == kept
    )
    assert decode(b'{"metadata": {}}', Pod, "get").metadata.annotations is None


def test_a_long_affinity_of_a_template_is_kept_as_text_and_reads_as_before() -> None:
    terms = [
        {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/hostname",
                    "operator": "In",
                    "values": [f"node-{n}" for n in range(500)],
                }
            ]
        }
    ]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    text = json.dumps({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"affinity": affinity}}}})
    job = decode(text.encode(), Job, "get")
    assert isinstance(job.spec.template.spec.affinity, StoredJson)
    assert job.spec.template.spec.affinity == affinity
    assert job == msgspec.convert(json.loads(text), Job)
    pod = decode(json.dumps({"spec": {"affinity": affinity}}).encode(), Pod, "get")
    assert isinstance(pod.spec.affinity, StoredJson)
    assert decode(b'{"spec": {"affinity": {"nodeAffinity": {}}}}', Pod, "get").spec.affinity == {
        "nodeAffinity": {}
    }


def kept(**job: object) -> Job:
    """A Job as it is read alone; read in a list it is the same."""
    text = json.dumps({"metadata": {"name": "j", "namespace": "ada"}, **job}).encode()
    one = decode(text, Job, "get")
    page = decode_page(b'{"metadata":{},"items":[' + text + b"]}", Job, "list")
    assert (page.items, page.undecodable) == ([one], {})
    return one


def with_spec(**spec: object) -> dict[str, object]:
    return {
        "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}], **spec}}
    }


def size(obj: object) -> int:
    return len(msgspec.json.encode(obj, enc_hook=plain))


def test_labels_and_owners_that_no_object_has_are_not_kept() -> None:
    labels = {f"a-{number}": "x" for number in range(20_000)} | {"fluxqueue/queue": "gpu"}
    owners = [
        {"kind": "A", "name": f"o{number}", "uid": f"o{number}", "controller": number == 9_000}
        for number in range(9_001)
    ]
    job = kept(
        metadata={
            "name": "j",
            "labels": labels,
            "ownerReferences": owners,
            "finalizers": [f"f{number}" for number in range(9_000)],
        }
    )
    assert (job.metadata.label("a-0"), job.metadata.label("fluxqueue/queue")) == ("x", "gpu")
    assert job.metadata.controller is not None
    assert job.metadata.controller.name == "o9000"
    assert size(job) < 65_536
    few = {f"a-{number}": "x" for number in range(256)}
    assert kept(metadata={"name": "j", "labels": few}).metadata.labels == few


def test_a_long_annotation_is_cut_and_cannot_be_read_as_what_it_asks_for() -> None:
    after = ",".join(f"ok:job/{'x' * 63}-{number}" for number in range(1_000))
    injection = {"fluxqueue/minicluster-injection": "{" + " " * 100_000}
    annotations = {
        **injection,
        "fluxqueue/after": after,
        "fluxqueue/duration": "1h" + " " * 20_000,
        "fluxqueue/fluxion-nodes": "n" * 50_000,
    }
    read = kept(metadata={"name": "j", "annotations": annotations}).metadata
    with pytest.raises(InvalidDependencies, match="characters"):
        parse_dependencies(read.annotation("fluxqueue/after") or "")
    assert len(read.annotation("fluxqueue/duration") or "") < 2_000
    assert len(read.annotation("fluxqueue/minicluster-injection") or "") == 32_769
    assert read.annotation("fluxqueue/fluxion-nodes") == "n" * 50_000, "the queue writes it"


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "a"}] * 60_000},
        {"initContainers": [{"name": f"c{number}"} for number in range(20_000)]},
        {
            "volumes": [
                {"name": f"v{number}", "persistentVolumeClaim": {"claimName": "c"}}
                for number in range(20_000)
            ]
        },
        {
            "topologySpreadConstraints": [
                {"labelSelector": {"matchLabels": {f"l{number}": "x" for number in range(20_000)}}}
            ]
        },
    ],
)
def test_of_a_spec_that_no_pod_has_the_requests_are_kept_and_no_node_meets_it(
    spec: dict[str, object],
) -> None:
    job = kept(spec=with_spec(nodeName="n1", **spec))
    template = job.spec.template.spec
    assert is_cut(template)
    assert (pod_requests(template), template.node_name) == ({"cpu": Decimal(2)}, "n1")
    assert size(job) < 65_536
    assert template != kept(spec=with_spec(tolerations=[{"key": "a"}] * 10)).spec.template.spec


def test_of_very_many_resources_the_first_are_kept() -> None:
    many = {f"example.com/{number}": "1" for number in range(30_000)}
    job = kept(
        spec={
            "template": {
                "spec": {"containers": [{"name": "a", "resources": {"requests": {**many, "cpu": "2"}}}]}
            }
        }
    )
    requests = pod_requests(job.spec.template.spec)
    assert (requests["cpu"], len(requests)) == (Decimal(2), 64)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ({"x": [{}] * 300_000}, "spec.podTemplate.x has 300000 entries: use at most 1000"),
        (
            {f"a{number}": {f"b{number}": {} for number in range(900)} for number in range(100)},
            "spec has more than 10000 values",
        ),
    ],
)
def test_of_a_minicluster_with_more_than_any_has_the_numbers_are_kept_and_the_sentence(
    template: object, sentence: str
) -> None:
    """It stays in the cache: one that is not there counts as deleted, and its Job with it."""
    long, short = (
        {
            "metadata": {"name": name, "namespace": "ada"},
            "spec": {"size": 4, "containers": [{"image": "a"}], "podTemplate": pod_template},
        }
        for name, pod_template in (("long", template), ("short", {"metadata": {"labels": {"a": "b"}}}))
    )
    page = decode_page(json.dumps({"metadata": {}, "items": [long, short]}).encode(), MiniCluster, "list")
    assert page.items[0] == decode(json.dumps(long).encode(), MiniCluster, "get")
    assert page.items[0].spec.size == 4
    assert size(page.items[0]) < 8_192
    (problem,) = find_problems(page.items[0]).errors
    assert problem.startswith(sentence)
    assert page.items[1].spec.pod_template == {"metadata": {"labels": {"a": "b"}}}


def test_a_claim_that_is_too_long_is_not_read_and_no_other_suffers() -> None:
    labels = {f"l{number}": "x" for number in range(20_000)}
    claims = [
        {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels if name == "long" else {}}}}
        for name in ("a", "long")
    ]
    page = decode_page(json.dumps({"metadata": {}, "items": claims}).encode(), PersistentVolumeClaim, "list")
    assert [claim.metadata.name for claim in page.items] == ["a"]
    assert "no more than 131072 are kept" in page.undecodable["", "long"]


@pytest.mark.parametrize(
    "of", [PersistentVolumeClaim, FluxJob, Event, ResourceClaim, PodDisruptionBudget, NamedObject]
)
def test_the_annotations_of_what_else_people_create_are_not_kept(of: type[PersistentVolumeClaim]) -> None:
    text = json.dumps(
        {
            "metadata": {
                "name": "a",
                "annotations": {"team/note": "x" * 200_000, "volume.kubernetes.io/selected-node": "n1"},
            }
        }
    )
    assert decode(text.encode(), of, "get").metadata.annotations == {
        "volume.kubernetes.io/selected-node": "n1"
    }


HOSTILE_METADATA = {
    "name": "a",
    "labels": {f"k{number}": "v" * 60 for number in range(10_000)},
    "annotations": {f"a{number}": "v" * 60 for number in range(4_000)},
    "ownerReferences": [{"kind": "A", "name": "o" * 60, "uid": f"{number}"} for number in range(10_000)],
    "finalizers": [f"a/{number}" for number in range(10_000)],
    "managedFields": [{"manager": "m", "fieldsV1": {f"f:{number}": {}}} for number in range(10_000)],
}


@pytest.mark.parametrize(
    "of",
    [
        *(Job, Pod, DaemonSet, MiniCluster, FluxJob, Event, PersistentVolumeClaim, PodDisruptionBudget),
        *(ResourceClaim, ResourceClaimTemplate, NamedObject),
    ],
)
def test_little_is_kept_of_whatever_people_write_that_is_watched(of: type[Job]) -> None:
    tolerations = [{"key": f"t{number}", "operator": "Exists"} for number in range(20_000)]
    pod = {"containers": [{"name": "a"}], "tolerations": tolerations}
    document = {
        "metadata": HOSTILE_METADATA,
        "spec": {**pod, "template": {"metadata": HOSTILE_METADATA, "spec": pod}},
        "data": {"a": "x" * 1_000_000},
    }
    assert size(decode(json.dumps(document).encode(), of, "get")) < 131_072


def test_characters_that_nobody_reads_are_not_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    """To replace a million of them takes a second, each time the object changes."""
    cleaned: list[bytes] = []

    def note(data: bytes) -> bytes:
        cleaned.append(data)
        return data

    monkeypatch.setattr(decoding, "without_controls", note)
    job = kept(
        spec={
            "template": {
                "spec": {"containers": [{"name": "a", "env": [{"name": "e", "value": "\x01" * 100_000}]}]}
            }
        }
    )
    assert job.spec.template.spec.containers[0].name == "a"
    assert cleaned
    assert max(map(len, cleaned)) < 1_000


async def test_other_work_goes_on_while_a_long_page_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 MiB, affinities or characters to clean take two seconds."""
    monkeypatch.setattr(decoding, "_TURN_S", 0.0)
    items = [
        {"metadata": {"name": f"p{number}"}, "status": {"message": "\x01" * 50_000}} for number in range(10)
    ]
    long = json.dumps(
        {
            "metadata": {"resourceVersion": "7", "continue": "next"},
            "items": [*items, {"metadata": {"name": 1}}],
        }
    ).encode()
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(another())
    odd = {"metadata": {"name": "odd"}, "spec": 1}
    page = await decode_page_in_turns(
        json.dumps({"metadata": {"resourceVersion": "7"}, "items": [*items, odd]}).encode(), Pod, "list pods"
    )
    assert turns > 5
    assert (len(page.items), page.resource_version, [*page.undecodable]) == (10, "7", [("", "odd")])
    with pytest.raises(Undecodable, match="list pods"):
        await decode_page_in_turns(long, Pod, "list pods")
    before = turns
    assert len((await decode_page_in_turns(b'{"metadata":{},"items":[]}', Pod, "list pods")).items) == 0
    assert turns == before, "a short one at once"
    beside.cancel()
