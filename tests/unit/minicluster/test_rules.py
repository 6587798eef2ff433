"""Problems of a MiniCluster are reported at admission, with the field and the remedy."""

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
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ada"}, "spec": {"containers": [RUNNER], **spec}},
        MiniCluster,
    )


def beside(**container: Any) -> list[dict[str, Any]]:
    """The container that runs Flux, and one more."""
    return [{**RUNNER, "runFlux": True}, container]


def nested(depth: int) -> dict[str, Any]:
    """Return objects nested to this depth."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found


def test_an_ordinary_one_has_no_problem() -> None:
    findings = find_problems(minicluster(size=4, maxSize=6, minSize=2, tasks=8, duration="30m"))
    assert findings.errors == ()
    assert findings.warnings == ()


@pytest.mark.parametrize(
    ("spec", "field", "remedy"),
    [
        ({"jobLabels": {"fluxqueue/jobid": "7"}}, "spec.jobLabels: fluxqueue/jobid", "remove it"),
        (
            {"pod": {"labels": {"fluxqueue/services-of": "u"}}},
            "spec.pod.labels: fluxqueue/services-of",
            "remove it",
        ),
        (
            {"pod": {"labels": {"fluxqueue/managed": "false"}}},
            "spec.pod.labels: fluxqueue/managed",
            "remove it",
        ),
        (
            {"jobLabels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec.jobLabels: kueue.x-k8s.io/queue-name",
            "remove it",
        ),
        (
            {"pod": {"annotations": {"fluxqueue/allocation": "7"}}},
            "spec.pod.annotations: fluxqueue/allocation",
            "remove it",
        ),
        (
            {"podTemplate": {"metadata": {"annotations": {"fluxqueue/exempt": "true"}}}},
            "spec.podTemplate.metadata.annotations",
            "remove it",
        ),
        ({"size": 0}, "spec.size", "from 1 to 10000"),
        ({"size": 10_001}, "spec.size", "from 1 to 10000"),
        ({"maxSize": 100_000}, "spec.maxSize", "from 0 to 10000"),
        ({"formTimeoutSeconds": 0}, "spec.formTimeoutSeconds", "from 1 to 86400"),
        ({"restful": {"port": 70_000}}, "spec.restful.port", "from 1 to 65535"),
        ({"containers": [{**RUNNER, "ports": [0]}]}, "spec.containers[0].ports", "from 1 to 65535"),
        (
            {"containers": [{**RUNNER, "commands": {"script": "x" * 262_145}}]},
            "spec.containers[0].commands.script",
            "a volume for more",
        ),
        (
            {"containers": [{**RUNNER, "commands": dict.fromkeys(("pre", "post", "init"), "x" * 200_000)}]},
            "spec has more",
            "smaller",
        ),
        ({"jobLabels": {f"k{number}": "" for number in range(1_001)}}, "spec.jobLabels", "at most 1000"),
        (
            {"podTemplate": {"spec": {"x": [[0] * 1_000 for _ in range(11)]}}},
            "spec has more than 10000 values",
            "smaller",
        ),
        ({"podTemplate": {"spec": nested(40)}}, "spec.podTemplate.spec.x", "nested more than 32 deep"),
        ({"podTemplate": {"metadata": {"annotations": {"a": "x" * 250_000}}}}, "spec makes", "annotations"),
        (
            {"containers": [{**RUNNER, "command": "x" * 65_537}]},
            "spec.containers[0].command",
            "at most 65536",
        ),
        (
            {"containers": [{**RUNNER, "commands": {"prefix": "x" * 4_097}}]},
            "spec.containers[0].commands.prefix",
            "at most 4096",
        ),
        ({"flux": {"optionFlags": "x" * 4_097}}, "spec.flux.optionFlags", "at most 4096"),
        (
            {"containers": [{**RUNNER, "batch": True, "command": "a\n" * 4_097}]},
            "spec.containers[0].command",
            "use batchRaw",
        ),
        ({"flux": {"bursting": {"hostlist": "a[1-9999]-" + "x" * 200}}}, "spec makes", "ConfigMap"),
        ({"podTemplate": {"metadata": None}}, "spec.podTemplate", "as a pod template has it"),
        (
            {"podTemplate": {"metadata": {"annotations": None}}},
            "spec.podTemplate",
            "as a pod template has it",
        ),
        ({"podTemplate": {"spec": {"containers": 5}}}, "spec.podTemplate", "as a pod template has it"),
        ({"podTemplate": {"spec": {"containers": [{}]}}}, "spec.podTemplate", "as a pod template has it"),
        ({"podTemplate": {"spec": {"tolerations": 5}}}, "spec makes no pod", "correct it"),
        ({"containers": [{**RUNNER, "resources": {"requests": 5}}]}, "spec makes no pod", "correct it"),
        (
            {"services": [{"name": "s", "resources": {"requests": 5}}]},
            "spec.services makes no pod",
            "correct it",
        ),
        ({"size": 4, "maxSize": 3}, "spec.maxSize", "raise it"),
        ({"size": 2, "minSize": 3}, "spec.minSize", "lower it"),
        ({"backoffLimit": -1}, "spec.backoffLimit", "from 0 to 2147483647"),
        ({"tasks": -1}, "spec.tasks", "from 0 to 2147483647"),
        ({"deadlineSeconds": -5}, "spec.deadlineSeconds", "from 0 to 2147483647"),
        ({"duration": "soon"}, "spec.duration", "soon"),
        ({"podTemplate": {"status": {}}}, "spec.podTemplate.status", "metadata and spec"),
        ({"podTemplate": {"spec": {"nodeName": "n1"}}}, "spec.podTemplate.spec.nodeName", "leave it out"),
        (
            {"podTemplate": {"spec": {"schedulingGates": []}}},
            "spec.podTemplate.spec.schedulingGates",
            "leave it out",
        ),
        (
            {"podTemplate": {"spec": {"hostNetwork": True}}},
            "spec.podTemplate.spec.hostNetwork",
            "leave it out",
        ),
        (
            {"podTemplate": {"spec": {"setHostnameAsFQDN": True}}},
            "spec.podTemplate.spec.setHostnameAsFQDN",
            "leave it out",
        ),
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
        (
            {"containers": [{**RUNNER, "environment": {"A B": "1"}}]},
            "spec.containers[0].environment",
            "letters, digits",
        ),
        (
            {
                "containers": [
                    {**RUNNER, "environment": {"A": "1"}, "secrets": {"A": {"name": "s", "key": "k"}}}
                ]
            },
            "spec.containers[0].secrets.A",
            "leave one out",
        ),
        (
            {"containers": [{**RUNNER, "lifeCycle": {"preStopExec": "rm -rf x"}}]},
            "spec.containers[0].lifeCycle.preStopExec",
            "a script",
        ),
        (
            {"containers": [{**RUNNER, "volumes": {"v": {"readOnly": True}}}]},
            "spec.containers[0].volumes.v",
            "names no volume",
        ),
        (
            {"containers": [{**RUNNER, "volumes": {"v": {"claimName": "c"}}}]},
            "spec.containers[0].volumes.v.path",
            "claimName c",
        ),
        (
            {"containers": [{**RUNNER, "volumes": {"v": {"hostPath": "/h"}}}]},
            "spec.containers[0].volumes.v.path",
            "hostPath /h",
        ),
        (
            {"containers": [{**RUNNER, "volumes": {"v": {"claimName": "c", "path": "d"}}}]},
            "spec.containers[0].volumes.v.path",
            "slash",
        ),
        (
            {"containers": [{**RUNNER, "volumes": {"V_": {"claimName": "c", "path": "/d"}}}]},
            "spec.containers[0].volumes.V_",
            "lower case",
        ),
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
        (
            {"services": [{"name": "s", "commands": {"pre": "x"}}]},
            "spec.services[0].commands.pre",
            "leave it out",
        ),
        (
            {"services": [{"name": "s", "commands": {"brokerPre": "x"}}]},
            "spec.services[0].commands.brokerPre",
            "leave it out",
        ),
        ({"network": {"headlessName": "9x"}}, "spec.network.headlessName", "Service"),
        (
            {"network": {"headlessName": "flux-sample-web"}, "containers": beside(name="web", ports=[80])},
            "spec.containers[1].name",
            "headless",
        ),
        ({"containers": beside(name="w" * 60, ports=[80])}, "spec.containers[1].name", "shorten"),
        ({"flux": {"container": {"mountPath": "mnt"}}}, "spec.flux.container.mountPath", "slash"),
        (
            {"flux": {"minimalService": True, "topology": "binomial"}},
            "spec.flux.topology",
            "leave one of them out",
        ),
        (
            {"flux": {"minimalService": True, "topology": "kary:2"}},
            "spec.flux.topology",
            "leave one of them out",
        ),
        ({"flux": {"curveCert": CERTIFICATE_WITHOUT_NAME}}, "spec.flux.curveCert", ""),
        ({"flux": {"environment": {"1A": "x"}}}, "spec.flux.environment", "letters, digits"),
        ({"flux": {"bursting": {"hostlist": "a[0-", "clusters": []}}}, "spec.flux.bursting.hostlist", ""),
        (
            {"flux": {"bursting": {"hostlist": "a[1-1000000]"}}},
            "spec.flux.bursting.hostlist",
            "more than 10000 hosts",
        ),
        (
            {"flux": {"bursting": {"clusters": [{"size": 100_000}] * 8}}},
            "spec.size and spec.flux.bursting come to 800001",
            "10000 in all",
        ),
        (
            {"maxSize": 6_000, "flux": {"bursting": {"clusters": [{"size": 6_000}]}}},
            "spec.maxSize and spec.flux.bursting",
            "10000 in all",
        ),
        (
            {"flux": {"bursting": {"clusters": [{"name": "a b"}]}}},
            "spec.flux.bursting.clusters[0].name",
            "lower case",
        ),
        (
            {"flux": {"bursting": {"hostlist": "a", "clusters": [{"name": "b"}]}}},
            "spec.flux.bursting",
            "leave one out",
        ),
        (
            {"flux": {"bursting": {"clusters": [{"name": "b"}, {"name": "b"}]}}},
            "spec.flux.bursting.clusters",
            "twice",
        ),
    ],
)
def test_a_mistake_is_reported_with_field_and_remedy(spec: dict[str, Any], field: str, remedy: str) -> None:
    errors = find_problems(minicluster(**spec)).errors
    assert [error for error in errors if error.startswith(field) and remedy in error], errors


@pytest.mark.parametrize("topology", ["", "custom", "kary:0"])
def test_brokers_that_all_connect_to_the_leader_need_no_other_name(topology: str) -> None:
    assert find_problems(minicluster(flux={"minimalService": True, "topology": topology})).errors == ()


def test_the_topology_of_a_custom_configuration_is_not_checked() -> None:
    assert (
        find_problems(
            minicluster(flux={"minimalService": True, "topology": "kary:2", "brokerConfig": "[tbon]"})
        ).errors
        == ()
    )


def test_pods_with_their_own_host_name_are_accepted() -> None:
    assert (
        find_problems(
            minicluster(podTemplate={"spec": {"hostNetwork": False, "setHostnameAsFQDN": False}})
        ).errors
        == ()
    )


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
def test_fields_without_effect_are_accepted_with_a_warning(spec: dict[str, Any], field: str) -> None:
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


def test_a_live_one_accepts_edits_only_of_fields_outside_its_pods() -> None:
    before = minicluster(size=2, maxSize=4, tasks=1)
    assert edit_problems(before, minicluster(size=4, maxSize=4, tasks=1, cleanup=True), live=True) == ()
    (problem,) = edit_problems(before, minicluster(size=2, maxSize=4, tasks=2), live=True)
    assert problem.startswith("spec.tasks")
    assert "apply it again" in problem


def test_it_does_not_grow_beyond_its_initial_maximum() -> None:
    (problem,) = edit_problems(minicluster(size=2), minicluster(size=3), live=True)
    assert problem.startswith("spec.size 3 is more than the 2 brokers")


def test_a_volume_with_only_a_path_is_an_empty_directory_with_a_warning() -> None:
    findings = find_problems(minicluster(containers=[{**RUNNER, "volumes": {"data": {"path": "/data"}}}]))
    assert findings.errors == ()
    (warning,) = findings.warnings
    assert warning.startswith("spec.containers[0].volumes.data has only a path")
    assert "is deleted with its pod" in warning


def test_a_volume_with_only_a_path_needs_a_valid_path() -> None:
    (error,) = find_problems(
        minicluster(containers=[{**RUNNER, "volumes": {"data": {"path": "data"}}}])
    ).errors
    assert "begin it with a slash" in error
