"""One odd object does not keep the others of a list from being read."""

import json

import msgspec
import pytest

from fluxqueue.api.clusterobjects import ScaledWorkload
from fluxqueue.api.jobs import Job
from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod
from fluxqueue.api.storedjson import StoredJson
from fluxqueue.kube.decoding import decode, decode_page
from fluxqueue.kube.errors import Undecodable
from fluxqueue.minicluster.rules import find_problems

DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000


def listed(name: str, template: str = "{}") -> str:
    spec = f'{{"containers":[{{"command":"a"}}],"podTemplate":{{"spec":{template}}}}}'
    return f'{{"metadata":{{"name":"{name}","namespace":"ada"}},"spec":{spec}}}'


def test_an_object_that_is_nested_too_deeply_is_decoded_without_its_inner_part() -> None:
    page = decode_page(f'{{"metadata":{{}},"items":[{listed("one")},{listed("deep", DEEP)}]}}'.encode(), MiniCluster, "list")
    assert [each.metadata.name for each in page.items] == ["one", "deep"]
    assert find_problems(page.items[0]).errors == ()
    assert "nested more than 32 deep" in find_problems(page.items[1]).errors[0]
    assert decode(listed("deep", DEEP).encode(), MiniCluster, "get").metadata.name == "deep"


def test_an_object_that_does_not_fit_is_left_out_and_named() -> None:
    body = {
        "metadata": {},
        "items": [{"metadata": {"name": "odd", "namespace": "ada"}, "spec": {"size": "four"}}, json.loads(listed("one"))],
    }
    page = decode_page(json.dumps(body).encode(), MiniCluster, "list")
    assert [each.metadata.name for each in page.items] == ["one"]
    assert ("ada", "odd") in page.undecodable


def pod(message: str) -> str:
    return json.dumps({"metadata": {"name": "p", "annotations": {"fluxqueue/after": "\x1b[2J"}}, "status": {"message": message}})


def test_control_characters_of_what_is_stored_or_shown_become_pictures() -> None:
    one = decode(pod("out\0\tof\nmemory").encode(), Pod, "get")
    (listed_one,) = decode_page(f'{{"metadata":{{}},"items":[{pod("out" + chr(0))}]}}'.encode(), Pod, "list").items
    assert one.status.message == "out\u2400\tof\nmemory"
    assert one.metadata.annotation("fluxqueue/after") == "\u241b[2J"
    assert listed_one.status.message == "out\u2400"


def test_the_spec_of_a_minicluster_is_kept_as_written_and_its_metadata_is_not() -> None:
    text = listed("one").replace('"command":"a"', r'"command":"printf \u001b[1m"').replace('"ada"', r'"ada","annotations":{"a":"\u0000"}')
    (other,) = decode_page(f'{{"metadata":{{}},"items":[{text}]}}'.encode(), MiniCluster, "list").items
    for each in (decode(text.encode(), MiniCluster, "get"), other):
        assert each.spec.containers[0].command == "printf \x1b[1m"
        assert each.metadata.annotation("a") == "\u2400"


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
def test_annotations_that_nobody_reads_are_dropped_from_objects_and_templates(of: type[Job] | type[ScaledWorkload]) -> None:
    template = {"metadata": {"annotations": LARGE}}
    text = json.dumps({"metadata": {"name": "a", "annotations": {**LARGE, **READ}}, "spec": {"template": template}})
    (listed_one,) = decode_page(f'{{"metadata":{{}},"items":[{text}]}}'.encode(), of, "list").items
    for each in (decode(text.encode(), of, "get"), listed_one):
        assert each.metadata.annotations == READ
        assert each.spec.template.metadata.annotations == {}, "not None: there are annotations, which a patch must not replace"


def test_the_annotations_of_pods_that_are_read_stay() -> None:
    kept = {"batch.kubernetes.io/job-completion-index": "3", "scheduling.k8s.io/group-name": "g", "fluxqueue/allocation": "7"}
    assert decode(json.dumps({"metadata": {"annotations": {**kept, **LARGE}}}).encode(), Pod, "get").metadata.annotations == kept
    assert decode(b'{"metadata": {}}', Pod, "get").metadata.annotations is None


def test_a_long_affinity_of_a_template_is_kept_as_text_and_reads_as_before() -> None:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node-{n}" for n in range(500)]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    text = json.dumps({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"affinity": affinity}}}})
    job = decode(text.encode(), Job, "get")
    assert isinstance(job.spec.template.spec.affinity, StoredJson)
    assert job.spec.template.spec.affinity == affinity
    assert job == msgspec.convert(json.loads(text), Job)
    pod = decode(json.dumps({"spec": {"affinity": affinity}}).encode(), Pod, "get")
    assert isinstance(pod.spec.affinity, StoredJson)
    assert decode(b'{"spec": {"affinity": {"nodeAffinity": {}}}}', Pod, "get").spec.affinity == {"nodeAffinity": {}}
