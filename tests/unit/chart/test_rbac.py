"""Each program may do what it does, and nothing else."""

import itertools

import pytest
from chart_rendering import Chart, Json, Rendered, flag

QUEUE = "fluxqueue-queue"

MUTATES = {"create", "update", "patch", "delete"}


def _rules(rendered: Rendered, kind: str, name: str) -> list[Json]:
    return list(rendered.one(kind, name)["rules"])


def _verbs(rules: list[Json]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_nobody_is_given_everything(default: Rendered) -> None:
    for kind in ("ClusterRole", "Role"):
        for role in default.all(kind):
            for rule in role["rules"]:
                assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}, role["metadata"]["name"]


def test_the_queue_changes_only_what_it_must(default: Rendered) -> None:
    changed = {key: verbs & MUTATES for key, verbs in _verbs(_rules(default, "ClusterRole", QUEUE)).items() if verbs & MUTATES}
    assert changed == {
        ("batch", "jobs"): {"patch"},
        ("batch", "jobs/status"): {"patch"},
        ("", "pods"): {"patch", "delete"},
        ("", "events"): {"create", "patch"},
        ("jobs.converged-computing.org", "fluxjobs"): {"create", "update", "patch", "delete"},
        ("jobs.converged-computing.org", "fluxjobs/status"): {"update", "patch"},
        ("jobs.converged-computing.org", "fluxqueues/status"): {"update", "patch"},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"update", "patch"},
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"update", "patch"},
    }


def test_only_where_nodes_may_be_added_the_queue_may_ask_for_them(chart: Chart, default: Rendered) -> None:
    shape = {"name": "big", "allocatable": {"cpu": "64"}, "maxNodes": 4}
    growing = _verbs(_rules(chart.render({"queue": {"config": {"nodeShapes": [shape]}}}), "ClusterRole", QUEUE))
    fixed = _verbs(_rules(default, "ClusterRole", QUEUE))
    assert {key: verbs for key, verbs in growing.items() if key not in fixed} == {
        ("autoscaling.x-k8s.io", "provisioningrequests"): {"list", "create", "delete"},
        ("", "podtemplates"): {"create", "delete"},
    }


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("", "nodes"),
        ("", "namespaces"),
        ("", "limitranges"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("node.k8s.io", "runtimeclasses"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "deployments"),
        ("apps", "daemonsets"),
        ("jobs.converged-computing.org", "fluxqueues"),
    ],
)
def test_the_queue_watches_what_it_decides_by(default: Rendered, group: str, resource: str) -> None:
    assert _verbs(_rules(default, "ClusterRole", QUEUE))[group, resource] == {"get", "list", "watch"}


def test_the_queue_reads_no_secret_but_its_certificate_s(default: Rendered) -> None:
    assert ("", "secrets") not in _verbs(_rules(default, "ClusterRole", QUEUE))
    rules = [rule for rule in _rules(default, "Role", QUEUE) if rule["resources"] == ["secrets"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        (["fluxqueue-webhook-tls"], ["get", "update", "patch"]),
    ]


def test_the_queue_writes_no_lease_but_its_own(default: Rendered) -> None:
    rules = [rule for rule in _rules(default, "Role", QUEUE) if rule["resources"] == ["leases"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        (flag(default.container(QUEUE, "queue")["args"], "--lease"), ["get", "list", "watch", "patch"]),
    ]


def test_the_queue_touches_no_webhook_configuration_but_ours(default: Rendered) -> None:
    (rule,) = [r for r in _rules(default, "ClusterRole", QUEUE) if "mutatingwebhookconfigurations" in r["resources"]]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert rule["resourceNames"] == [default.all(kind)[0]["metadata"]["name"]]


def test_with_cert_manager_the_queue_has_no_right_on_certificates(chart: Chart) -> None:
    rendered = chart.render({"certificates": {"mode": "certManager"}})
    granted = _verbs(_rules(rendered, "ClusterRole", QUEUE) + _rules(rendered, "Role", QUEUE))
    assert not {resource for _, resource in granted} & {
        "secrets",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }


def test_every_program_has_an_identity_of_its_own(default: Rendered) -> None:
    identities = {name: spec["serviceAccountName"] for name, spec in default.pod_specs()}
    assert len(set(identities.values())) == len(identities) == 3
    assert set(identities.values()) == {account["metadata"]["name"] for account in default.all("ServiceAccount")}


def test_the_webhook_and_the_database_have_no_rights_and_no_token(default: Rendered) -> None:
    bound = {s["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for b in default.all(kind) for s in b["subjects"]}
    assert bound == {QUEUE, "system:authenticated"}
    specs = dict(default.pod_specs())
    assert [specs[name]["automountServiceAccountToken"] for name in ("fluxqueue-webhook", "fluxqueue-postgres")] == [False, False]


def test_people_see_and_steer_fluxjobs_but_neither_make_nor_delete_them(default: Rendered) -> None:
    edit = default.one("ClusterRole", "fluxqueue-fluxjobs-edit")
    view = default.one("ClusterRole", "fluxqueue-fluxjobs-view")
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert _verbs(edit["rules"]) == {("jobs.converged-computing.org", "fluxjobs"): {"update", "patch"}}
    assert not MUTATES & set().union(*_verbs(view["rules"]).values())


def test_who_asks_the_doctor_needs_no_right_outside_the_release_namespace(default: Rendered) -> None:
    role = default.one("Role", "fluxqueue-doctor")
    assert _verbs(role["rules"]) == {("", "pods"): {"get", "list"}, ("", "pods/proxy"): {"get", "create"}}


def test_queues_are_readable_by_everyone_or_by_whom_one_names(chart: Chart, default: Rendered) -> None:
    binding = default.one("ClusterRoleBinding", "fluxqueue-fluxqueues-view")
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
    names = {b["metadata"]["name"] for b in chart.render({"rbac": {"queuesReadableBy": []}}).all("ClusterRoleBinding")}
    assert names == {QUEUE, f"{QUEUE}-miniclusters"}


def test_for_miniclusters_the_queue_makes_their_objects_and_no_others(default: Rendered) -> None:
    verbs = _verbs(_rules(default, "ClusterRole", f"{QUEUE}-miniclusters"))
    assert {key for key, allowed in verbs.items() if "create" in allowed} == {
        ("batch", "jobs"),
        ("", "pods"),
        ("", "secrets"),
        ("", "configmaps"),
        ("", "services"),
        ("networking.k8s.io", "networkpolicies"),
    }
    assert not {"list", "watch"} & verbs["", "secrets"], "it never looks through Secrets"
