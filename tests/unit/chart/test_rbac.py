"""Each program has the rights that it needs and no others."""

import itertools

import pytest
from support.chart_rendering import Chart, Json, Rendered, ValuesRefused, flag

QUEUE = "fluxqueue-queue"
MINICLUSTERS = {"enabled": True, "namespaces": ["*"]}

MUTATES = {"create", "update", "patch", "delete"}


def _rules(rendered: Rendered, kind: str, name: str) -> list[Json]:
    return list(rendered.one(kind, name)["rules"])


def _verbs(rules: list[Json]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group, resource in itertools.product(rule.get("apiGroups", ()), rule.get("resources", ())):
            found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_no_role_grants_everything(default: Rendered) -> None:
    for kind in ("ClusterRole", "Role"):
        for role in default.all(kind):
            for rule in role["rules"]:
                named = {word for words in rule.values() for word in words}
                assert "*" not in named, role["metadata"]["name"]


def test_the_queue_changes_only_what_it_must(default: Rendered) -> None:
    changed = {
        key: verbs & MUTATES
        for key, verbs in _verbs(_rules(default, "ClusterRole", QUEUE)).items()
        if verbs & MUTATES
    }
    assert changed == {
        ("batch", "jobs"): {"patch"},
        ("batch", "jobs/status"): {"patch"},
        ("", "pods"): {"patch", "delete"},
        ("", "pods/eviction"): {"create"},
        ("", "events"): {"create", "patch"},
        ("autoscaling.x-k8s.io", "provisioningrequests"): {"delete"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
        ("jobs.converged-computing.org", "fluxjobs"): {"create", "patch", "delete"},
        ("jobs.converged-computing.org", "fluxjobs/status"): {"patch"},
        ("jobs.converged-computing.org", "fluxqueues/status"): {"patch"},
        ("jobs.converged-computing.org", "fluxaccounts/status"): {"patch"},
        ("jobs.converged-computing.org", "fluxreservations/status"): {"patch"},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"patch"},
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"patch"},
    }


def test_the_queue_may_cordon_nodes_only_where_reservations_are_enabled(
    chart: Chart, default: Rendered
) -> None:
    enabled = chart.render({"reservations": {"enabled": True}})
    assert _verbs(_rules(default, "ClusterRole", QUEUE))["", "nodes"] == {"list", "watch"}
    assert _verbs(_rules(enabled, "ClusterRole", QUEUE))["", "nodes"] == {"list", "watch", "patch"}
    assert "fluxqueue-nodes" not in default.text
    (binding,) = [
        each
        for each in enabled.all("ValidatingAdmissionPolicyBinding")
        if each["metadata"]["name"] == "fluxqueue-nodes"
    ]
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_the_queue_may_request_nodes_only_with_an_autoscaler(chart: Chart, default: Rendered) -> None:
    shape = {"name": "big", "allocatable": {"cpu": "64"}, "maxNodes": 4}
    rendered = chart.render({"queue": {"config": {"nodeShapes": [shape]}}})
    growing = _verbs(_rules(rendered, "ClusterRole", QUEUE))
    fixed = _verbs(_rules(default, "ClusterRole", QUEUE))
    assert {
        key: verbs - fixed.get(key, set()) for key, verbs in growing.items() if verbs != fixed.get(key)
    } == {
        ("autoscaling.x-k8s.io", "provisioningrequests"): {"create"},
        ("", "podtemplates"): {"create", "delete"},
    }
    assert fixed["autoscaling.x-k8s.io", "provisioningrequests"] == {"list", "delete"}, "those made before"
    rooms, none = _verbs(_rules(rendered, "Role", QUEUE)), _verbs(_rules(default, "Role", QUEUE))
    assert {key: verbs for key, verbs in rooms.items() if key not in none} == {
        ("", "pods"): {"create"},
        ("", "pods/status"): {"patch"},
    }


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("", "nodes"),
        ("", "namespaces"),
        ("", "limitranges"),
        ("", "persistentvolumes"),
        ("", "persistentvolumeclaims"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "csinodes"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("node.k8s.io", "runtimeclasses"),
        ("apps", "daemonsets"),
        ("jobs.converged-computing.org", "fluxqueues"),
        ("jobs.converged-computing.org", "fluxaccounts"),
        ("jobs.converged-computing.org", "fluxreservations"),
    ],
)
def test_the_queue_may_watch_all_kinds_that_it_needs(default: Rendered, group: str, resource: str) -> None:
    assert _verbs(_rules(default, "ClusterRole", QUEUE))[group, resource] == {"list", "watch"}


def test_the_queue_reads_jobsets_and_does_nothing_else_to_them(default: Rendered) -> None:
    assert _verbs(_rules(default, "ClusterRole", QUEUE))["jobset.x-k8s.io", "jobsets"] == {"get"}


def test_the_queue_reads_no_secret_but_its_certificate_s(default: Rendered) -> None:
    assert ("", "secrets") not in _verbs(_rules(default, "ClusterRole", QUEUE))
    rules = [rule for rule in _rules(default, "Role", QUEUE) if rule["resources"] == ["secrets"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        (["fluxqueue-webhook-tls", "fluxqueue-queue-tls"], ["get", "patch"]),
    ]


def test_the_queue_writes_no_lease_but_its_own(default: Rendered) -> None:
    rules = [rule for rule in _rules(default, "Role", QUEUE) if rule["resources"] == ["leases"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        (flag(default.container(QUEUE, "queue")["args"], "--lease"), ["get", "list", "watch", "patch"]),
    ]


def test_the_queue_touches_no_webhook_configuration_but_ours(default: Rendered) -> None:
    (rule,) = [
        r for r in _rules(default, "ClusterRole", QUEUE) if "mutatingwebhookconfigurations" in r["resources"]
    ]
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
    accounts = {account["metadata"]["name"] for account in default.all("ServiceAccount")}
    assert accounts - set(identities.values()) == {
        "fluxqueue-doctor",
        "fluxqueue-doctor-repair",
        "fluxqueue-history",
    }, "whose tokens people request"


def test_the_webhook_lists_queues_and_the_database_has_no_rights_and_no_token(default: Rendered) -> None:
    assert _verbs(default.one("ClusterRole", "fluxqueue-webhook")["rules"]) == {
        ("jobs.converged-computing.org", "fluxqueues"): {"list", "watch"},
    }
    bound = {
        s["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for b in default.all(kind)
        for s in b["subjects"]
    }
    assert bound == {
        QUEUE,
        "fluxqueue-webhook",
        "system:authenticated",
        "fluxqueue-doctor",
        "fluxqueue-doctor-repair",
        "fluxqueue-history",
    }
    specs = dict(default.pod_specs())
    assert specs["fluxqueue-postgres"]["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in str(specs["fluxqueue-postgres"])


def test_people_see_and_steer_fluxjobs_but_neither_make_nor_delete_them(default: Rendered) -> None:
    edit = default.one("ClusterRole", "fluxqueue-fluxjobs-edit")
    view = default.one("ClusterRole", "fluxqueue-fluxjobs-view")
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert _verbs(edit["rules"]) == {("jobs.converged-computing.org", "fluxjobs"): {"update", "patch"}}
    assert not MUTATES & set().union(*_verbs(view["rules"]).values())


@pytest.mark.parametrize(
    ("name", "verb", "urls", "proxy"),
    [
        pytest.param("fluxqueue-doctor", "get", ["/status", "/doctor", "/doctor/bundle"], "get", id="ask"),
        pytest.param("fluxqueue-doctor-repair", "post", ["/doctor/repair"], "create", id="repair"),
    ],
)
def test_people_reach_the_doctor_by_a_token_of_an_account_that_may_nothing_else(
    default: Rendered, name: str, verb: str, urls: list[str], proxy: str
) -> None:
    assert default.one("ClusterRole", name)["rules"] == [{"nonResourceURLs": urls, "verbs": [verb]}]
    assert [subject["name"] for subject in default.one("ClusterRoleBinding", name)["subjects"]] == [name]
    people = default.one("Role", name)["rules"]
    assert _verbs(people) == {
        ("", "pods"): {"list"},
        ("", "serviceaccounts/token"): {"create"},
        ("", "pods/proxy"): {proxy},
    }
    (token,) = [rule for rule in people if "serviceaccounts/token" in rule["resources"]]
    assert token["resourceNames"] == [name]
    assert not [binding for binding in default.all("RoleBinding") if binding["roleRef"]["name"] == name], (
        "an administrator binds it"
    )


def test_people_reach_the_history_by_a_token_of_an_account_that_may_list_fluxjobs_only(
    default: Rendered,
) -> None:
    assert _verbs(default.one("ClusterRole", "fluxqueue-history")["rules"]) == {
        ("jobs.converged-computing.org", "fluxjobs"): {"list"}
    }
    (subject,) = default.one("ClusterRoleBinding", "fluxqueue-history")["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", "fluxqueue-history")
    (token,) = default.one("ClusterRole", "fluxqueue-history-reader")["rules"]
    assert (token["resources"], token["resourceNames"], token["verbs"]) == (
        ["serviceaccounts/token"],
        ["fluxqueue-history"],
        ["create"],
    )
    (reach,) = default.one("Role", "fluxqueue-history-proxy")["rules"]
    service = default.one("Service", QUEUE)
    assert reach["resourceNames"] == [f"https:{QUEUE}:{service['spec']['ports'][0]['name']}"]
    assert (reach["resources"], reach["verbs"]) == (["services/proxy"], ["get"])


def test_who_reaches_the_history_and_which_namespaces_have_it_is_configured(
    chart: Chart, default: Rendered
) -> None:
    opened = chart.render({"rbac": {"historyReachableBy": ["system:authenticated"]}})
    assert (
        opened.one("RoleBinding", "fluxqueue-history-proxy")["subjects"][0]["name"] == "system:authenticated"
    )
    assert "fluxqueue-history-proxy" not in {each["metadata"]["name"] for each in default.all("RoleBinding")}
    closed = chart.render({"rbac": {"historyIn": ["team-a"]}})
    accounts = [
        each for each in closed.all("ServiceAccount") if each["metadata"]["name"] == "fluxqueue-history"
    ]
    assert [each["metadata"].get("namespace") for each in accounts][-1] == "team-a"
    binding = closed.one("RoleBinding", "fluxqueue-history")
    assert binding["metadata"]["namespace"] == binding["subjects"][0]["namespace"] == "team-a"


def test_the_pods_of_the_queue_name_the_account_of_the_doctor(chart: Chart) -> None:
    rendered = chart.render(release="batch")
    template = rendered.one("Deployment", "batch-fluxqueue-queue")["spec"]["template"]
    assert rendered.one("ServiceAccount", template["metadata"]["annotations"]["fluxqueue/doctor"])


def test_metrics_are_for_configured_accounts(chart: Chart, default: Rendered) -> None:
    assert default.one("ClusterRole", "fluxqueue-metrics")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    assert "fluxqueue-metrics" not in {each["metadata"]["name"] for each in default.all("ClusterRoleBinding")}
    bound = chart.render({"rbac": {"metricsReadableBy": ["monitoring:prometheus"]}}).one(
        "ClusterRoleBinding", "fluxqueue-metrics"
    )
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]


def test_only_operators_write_queues_and_accounts(default: Rendered) -> None:
    writes = {}
    for role in [*default.all("ClusterRole"), *default.all("Role")]:
        for rule in role.get("rules") or ():
            if {"fluxqueues", "fluxaccounts", "fluxreservations"} & {
                *rule.get("resources", ())
            } and MUTATES & {*rule["verbs"]}:
                writes[role["metadata"]["name"]] = sorted(rule["resources"])
    assert writes == {"fluxqueue-operator": ["fluxaccounts", "fluxqueues", "fluxreservations"]}


def test_queues_are_readable_by_everyone_or_by_configured_subjects(chart: Chart, default: Rendered) -> None:
    binding = default.one("ClusterRoleBinding", "fluxqueue-fluxqueues-view")
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
    names = {
        b["metadata"]["name"]
        for b in chart.render({"rbac": {"queuesReadableBy": []}}).all("ClusterRoleBinding")
    }
    assert "fluxqueue-fluxqueues-view" not in names


def test_for_miniclusters_the_queue_makes_their_objects_and_no_others(chart: Chart) -> None:
    verbs = _verbs(
        _rules(chart.render({"miniclusters": MINICLUSTERS}), "ClusterRole", f"{QUEUE}-miniclusters-objects")
    )
    assert {key for key, allowed in verbs.items() if "create" in allowed} == {
        ("batch", "jobs"),
        ("", "pods"),
        ("", "secrets"),
        ("", "configmaps"),
        ("", "services"),
        ("networking.k8s.io", "networkpolicies"),
    }
    assert verbs["", "secrets"] == {"create"}, "it never reads one"


@pytest.mark.parametrize(
    ("namespaces", "bindings"),
    [
        pytest.param(
            ["team-a", "team-b"], [("RoleBinding", "team-a"), ("RoleBinding", "team-b")], id="chosen"
        ),
        pytest.param(["*"], [("ClusterRoleBinding", None)], id="all"),
    ],
)
def test_the_objects_of_miniclusters_are_made_in_chosen_namespaces(
    chart: Chart, namespaces: list[str], bindings: list[tuple[str, str | None]]
) -> None:
    rendered = chart.render({"miniclusters": {"enabled": True, "namespaces": namespaces}})
    name = f"{QUEUE}-miniclusters-objects"
    found = [
        (kind, binding["metadata"].get("namespace"))
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for binding in rendered.all(kind)
        if binding["roleRef"]
        == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    ]
    assert found == bindings


def test_without_miniclusters_there_is_no_right_for_them(default: Rendered) -> None:
    assert [
        role["metadata"]["name"]
        for role in default.all("ClusterRole")
        if "minicluster" in role["metadata"]["name"]
    ] == []


def test_the_queue_reads_only_gangs_that_the_cluster_has_or_that_values_name(
    chart: Chart, default: Rendered
) -> None:
    assert "fluxqueue-queue-gangs" not in default.text
    named = ["rayclusters.ray.io", "jobsets.jobset.x-k8s.io"]
    served = chart.render(
        {"gangs": {"resources": named}}, serves=["kubeflow.org/v2beta1/MPIJob", "kubeflow.org/v1/TFJob"]
    )
    assert _verbs(_rules(served, "ClusterRole", "fluxqueue-queue-gangs")) == {
        ("kubeflow.org", "mpijobs"): {"get", "list", "watch", "patch"},
        ("kubeflow.org", "tfjobs"): {"get", "list", "watch", "patch"},
        ("jobset.x-k8s.io", "jobsets"): {"get", "list", "patch"},
        ("ray.io", "rayclusters"): {"list", "watch"},
    }
    assert served.one("ClusterRoleBinding", "fluxqueue-queue-gangs")["subjects"][0]["name"] == QUEUE


def test_a_resource_that_no_gang_is_read_from_is_refused(chart: Chart) -> None:
    with pytest.raises(ValuesRefused, match="gangs"):
        chart.render({"gangs": {"resources": ["secrets"]}})
