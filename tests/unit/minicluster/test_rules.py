"""What cannot run is said at admission, with the field and the remedy."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.certs import curve
from fluxqueue.minicluster.rules import edit_problems, find_problems

RUNNER: dict[str, Any] = {"image": "app", "command": "hostname"}
CERTIFICATE_WITHOUT_NAME = 'curve\n    public-key = "x"\n    secret-key = "y"\n'


def minicluster(name: str = "flux-sample", /, **spec: Any) -> MiniCluster:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ada"}, "spec": {"containers": [RUNNER], **spec}}, MiniCluster)


def beside(**container: Any) -> list[dict[str, Any]]:
    """The container that runs Flux, and one more."""
    return [{**RUNNER, "runFlux": True}, container]


def test_an_ordinary_one_has_no_problem() -> None:
    findings = find_problems(minicluster(size=4, maxSize=6, minSize=2, tasks=8, duration="30m"))
    assert findings.errors == ()
    assert findings.warnings == ()


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        ({"size": 0}, "spec.size", "at least one broker"),
        ({"size": 4, "maxSize": 3}, "spec.maxSize", "raise it"),
        ({"size": 2, "minSize": 3}, "spec.minSize", "lower it"),
        ({"backoffLimit": -1}, "spec.backoffLimit", "0 or more"),
        ({"tasks": -1}, "spec.tasks", "0 for one on each node"),
        ({"deadlineSeconds": -5}, "spec.deadlineSeconds", "how long it may run"),
        ({"duration": "soon"}, "spec.duration", "soon"),
        ({"podTemplate": {"status": {}}}, "spec.podTemplate.status", "metadata and spec"),
        ({"podTemplate": {"spec": {"nodeName": "n1"}}}, "spec.podTemplate.spec.nodeName", "leave it out"),
        ({"podTemplate": {"spec": {"schedulingGates": []}}}, "spec.podTemplate.spec.schedulingGates", "leave it out"),
        ({"podTemplate": {"spec": {"hostNetwork": True}}}, "spec.podTemplate.spec.hostNetwork", "leave it out"),
        ({"podTemplate": {"spec": {"setHostnameAsFQDN": True}}}, "spec.podTemplate.spec.setHostnameAsFQDN", "leave it out"),
        ({"state": {"volume": {"path": "/state"}}}, "spec.state.volume", "outlives the pods"),
        ({"state": {"volume": {"claimName": "c"}}}, "spec.state.volume.path", "where the leader mounts"),
        ({"containers": []}, "spec.containers", "is empty"),
        ({"containers": [RUNNER, RUNNER]}, "spec.containers", "exactly one must"),
        ({"containers": [{**RUNNER, "launcher": True, "batch": True}]}, "spec.containers[0]", "choose one"),
        ({"containers": [{**RUNNER, "commands": {"script": "ls"}}]}, "spec.containers[0]", "choose one"),
        ({"containers": [{"batch": True}]}, "spec.containers[0].batch", "one job on each line"),
        ({"containers": beside(image="x")}, "spec.containers[1].name", "needs one"),
        ({"containers": [*beside(name="a"), {"name": "a"}]}, "spec.containers[2].name", "twice"),
        ({"containers": beside(name="Not_DNS")}, "spec.containers[1].name", "lower case"),
        ({"containers": [{**RUNNER, "environment": {"A B": "1"}}]}, "spec.containers[0].environment", "letters, digits"),
        (
            {"containers": [{**RUNNER, "environment": {"A": "1"}, "secrets": {"A": {"name": "s", "key": "k"}}}]},
            "spec.containers[0].secrets.A",
            "leave one out",
        ),
        ({"containers": [{**RUNNER, "lifeCycle": {"preStopExec": "rm -rf x"}}]}, "spec.containers[0].lifeCycle.preStopExec", "a script"),
        ({"containers": [{**RUNNER, "volumes": {"v": {"path": "/v"}}}]}, "spec.containers[0].volumes.v", "names no volume"),
        ({"containers": [{**RUNNER, "volumes": {"v": {"claimName": "c"}}}]}, "spec.containers[0].volumes.v.path", "claimName c"),
        ({"containers": [{**RUNNER, "volumes": {"v": {"hostPath": "/h"}}}]}, "spec.containers[0].volumes.v.path", "hostPath /h"),
        ({"containers": [{**RUNNER, "volumes": {"v": {"claimName": "c", "path": "d"}}}]}, "spec.containers[0].volumes.v.path", "slash"),
        ({"containers": [{**RUNNER, "volumes": {"V_": {"claimName": "c", "path": "/d"}}}]}, "spec.containers[0].volumes.V_", "lower case"),
        (
            {"containers": [{**RUNNER, "volumes": {"a": {"emptyDir": True}, "b": {"emptyDir": True}}}]},
            "spec.containers[0].volumes.b",
            "another path",
        ),
        (
            {
                "containers": [
                    {**RUNNER, "runFlux": True, "volumes": {"v": {"claimName": "one", "path": "/v"}}},
                    {"name": "b", "volumes": {"v": {"claimName": "two", "path": "/v"}}},
                ]
            },
            "spec.containers[1].volumes.v",
            "use another name",
        ),
        ({"services": [{"image": "x"}]}, "spec.services[0].name", "always needs one"),
        ({"services": [{"name": "s", "commands": {"pre": "x"}}]}, "spec.services[0].commands.pre", "leave it out"),
        ({"services": [{"name": "s", "commands": {"brokerPre": "x"}}]}, "spec.services[0].commands.brokerPre", "leave it out"),
        ({"network": {"headlessName": "9x"}}, "spec.network.headlessName", "Service"),
        (
            {"network": {"headlessName": "flux-sample-web"}, "containers": beside(name="web", ports=[80])},
            "spec.containers[1].name",
            "headless",
        ),
        ({"containers": beside(name="w" * 60, ports=[80])}, "spec.containers[1].name", "shorten"),
        ({"flux": {"container": {"mountPath": "mnt"}}}, "spec.flux.container.mountPath", "slash"),
        ({"flux": {"minimalService": True, "topology": "binomial"}}, "spec.flux.topology", "leave one of them out"),
        ({"flux": {"minimalService": True, "topology": "kary:2"}}, "spec.flux.topology", "leave one of them out"),
        ({"flux": {"curveCert": CERTIFICATE_WITHOUT_NAME}}, "spec.flux.curveCert", ""),
        ({"flux": {"environment": {"1A": "x"}}}, "spec.flux.environment", "letters, digits"),
        ({"flux": {"bursting": {"hostlist": "a[0-", "clusters": []}}}, "spec.flux.bursting.hostlist", ""),
        ({"flux": {"bursting": {"hostlist": "a", "clusters": [{"name": "b"}]}}}, "spec.flux.bursting", "leave one out"),
        ({"flux": {"bursting": {"clusters": [{"name": "b"}, {"name": "b"}]}}}, "spec.flux.bursting.clusters", "twice"),
    ],
)
def test_a_mistake_is_told_with_its_field_and_the_remedy(spec: dict[str, Any], field: str, remedy: str) -> None:
    errors = find_problems(minicluster(**spec)).errors
    assert [error for error in errors if error.startswith(field) and remedy in error], errors


@pytest.mark.parametrize("topology", ["", "custom", "kary:0"])
def test_brokers_that_all_connect_to_the_leader_need_no_other_name(topology: str) -> None:
    assert find_problems(minicluster(flux={"minimalService": True, "topology": topology})).errors == ()


def test_of_a_configuration_of_ones_own_the_topology_is_not_judged() -> None:
    assert find_problems(minicluster(flux={"minimalService": True, "topology": "kary:2", "brokerConfig": "[tbon]"})).errors == ()


def test_pods_that_keep_their_own_host_name_may_say_so() -> None:
    assert find_problems(minicluster(podTemplate={"spec": {"hostNetwork": False, "setHostnameAsFQDN": False}})).errors == ()


@pytest.mark.parametrize("name", ["x" * 53, "9lives", "under_score"])
def test_a_name_that_no_host_or_service_can_have_is_refused(name: str) -> None:
    assert find_problems(minicluster(name)).errors[0].startswith("metadata.name")


def test_a_certificate_of_ones_own_is_checked_and_warned_about_but_never_repeated() -> None:
    good = curve.make("flux-sample", dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    findings = find_problems(minicluster(flux={"curveCert": good.text}))
    assert findings.errors == ()
    assert "Secret" in findings.warnings[0]
    assert good.secret_key not in " ".join(findings.warnings)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"flux": {"arch": "arm"}}, "spec.flux.arch"),
        ({"flux": {"mungeSecret": "m"}}, "spec.flux.mungeSecret"),
        ({"pod": {"resources": {"cpu": 1}}}, "spec.pod.resources"),
        ({"deadlineSeconds": 0}, "spec.deadlineSeconds"),
        ({"containers": [{**RUNNER, "batchRaw": True}]}, "spec.containers[0].batchRaw"),
    ],
)
def test_what_does_nothing_is_accepted_with_a_warning(spec: dict[str, Any], field: str) -> None:
    findings = find_problems(minicluster(**spec))
    assert findings.errors == ()
    assert [warning for warning in findings.warnings if warning.startswith(field)], findings.warnings


@pytest.mark.parametrize(
    "spec",
    [{"archive": {"path": "/a"}}, {"services": [{"name": "s", "command": "x"}]}, {"interactive": True}],
    ids=lambda spec: next(iter(spec)),
)
def test_what_did_nothing_in_the_operator_and_works_here_is_not_warned_about(spec: dict[str, Any]) -> None:
    assert find_problems(minicluster(**spec)).warnings == ()


def test_before_it_is_made_anything_may_be_edited() -> None:
    assert edit_problems(minicluster(tasks=1), minicluster(tasks=2), live=False) == ()


def test_of_a_live_one_only_what_its_pods_do_not_carry_may_be_edited() -> None:
    before = minicluster(size=2, maxSize=4, tasks=1)
    assert edit_problems(before, minicluster(size=4, maxSize=4, tasks=1, cleanup=True), live=True) == ()
    (problem,) = edit_problems(before, minicluster(size=2, maxSize=4, tasks=2), live=True)
    assert problem.startswith("spec.tasks")
    assert "apply it again" in problem


def test_it_does_not_grow_beyond_what_it_was_made_for() -> None:
    (problem,) = edit_problems(minicluster(size=2), minicluster(size=3), live=True)
    assert problem.startswith("spec.size 3 is more than the 2 brokers")
