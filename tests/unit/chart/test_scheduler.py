"""Our own scheduler is rendered only if a site enables it, with the rights that it needs."""

from typing import Any

import pytest
from support.chart_rendering import Chart, Json, Rendered, ValuesRefused, flag

from fluxqueue.api import names

NAME = "fluxqueue-scheduler"
ENABLED: dict[str, Any] = {"enabled": True}
EXTENDER: dict[str, Any] = {"enabled": True, "tlsSecret": "served", "clientCASecret": "asked"}


@pytest.fixture(scope="session")
def enabled(chart: Chart) -> Rendered:
    return chart.render({"scheduler": ENABLED})


@pytest.fixture(scope="session")
def extending(chart: Chart) -> Rendered:
    return chart.render({"scheduler": {**ENABLED, "extender": EXTENDER}})


def _named(rendered: Rendered) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in rendered.objects}


def _policy(rendered: Rendered) -> Json:
    return dict(rendered.one("ValidatingAdmissionPolicy", NAME)["spec"])


def test_as_the_chart_comes_there_is_no_scheduler_and_no_right_for_one(default: Rendered) -> None:
    assert [each for each in _named(default) if "scheduler" in each[1]] == []
    for kind in ("ClusterRole", "Role"):
        resources = {
            resource
            for role in default.all(kind)
            for rule in role["rules"]
            for resource in rule.get("resources", ())
        }
        assert not resources & {"pods/binding", "pods/status"}


def test_enabling_it_adds_its_own_objects_and_read_rights(default: Rendered, enabled: Rendered) -> None:
    assert _named(enabled) - _named(default) == {
        (kind, NAME)
        for kind in (
            "Deployment",
            "Service",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "NetworkPolicy",
        )
    }
    others = {
        (kind, role["metadata"]["name"]): role["rules"]
        for kind in ("ClusterRole", "Role")
        for role in enabled.all(kind)
        if role["metadata"]["name"] not in (NAME, "fluxqueue-webhook")
    }
    added = [
        rule
        for (kind, name), rules in others.items()
        for rule in rules
        if rule not in default.one(kind, name)["rules"]
    ]
    certificates = ["fluxqueue-webhook-tls", "fluxqueue-queue-tls", f"{NAME}-tls"]
    assert added == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get"],
        },
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": certificates,
            "verbs": ["get", "patch"],
        },
    ]


def test_the_webhook_reads_namespaces_only_with_a_scheduler_of_ours(
    chart: Chart, default: Rendered, enabled: Rendered
) -> None:
    fluxion = chart.render({"scheduler": {**ENABLED, "default": "fluxion"}})
    both = ["fluxqueues", "namespaces"]
    for rendered, read, expected in (
        (default, ["fluxqueues"], []),
        (enabled, both, ["stock"]),
        (fluxion, both, ["fluxion"]),
    ):
        rules = rendered.one("ClusterRole", "fluxqueue-webhook")["rules"]
        assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
            ([kind], ["list", "watch"]) for kind in read
        ]
        mounts = rendered.container("fluxqueue-webhook", "webhook")["volumeMounts"]
        assert "token" in {mount["name"] for mount in mounts}
        assert (
            flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--default-scheduler")
            == expected
        )


def test_it_runs_from_the_queues_image_and_leads_by_a_lease_of_its_own(chart: Chart) -> None:
    digest = "sha256:" + "0" * 64
    rendered = chart.render({"scheduler": ENABLED, "queue": {"image": {"digest": digest}}})
    container = rendered.container(NAME, "scheduler")
    assert (
        container["image"]
        == rendered.container("fluxqueue-queue", "queue")["image"]
        == f"fluxqueue-queue@{digest}"
    )
    assert container["args"][0] == "scheduler"
    (lease,) = flag(container["args"], "--lease")
    assert [rule.get("resourceNames") for rule in rendered.one("Role", NAME)["rules"]] == [None, [lease]]
    assert lease != flag(rendered.container("fluxqueue-queue", "queue")["args"], "--lease")[0]


def test_it_may_bind_and_report_and_neither_make_nor_delete_anything(enabled: Rendered) -> None:
    rules = enabled.one("ClusterRole", NAME)["rules"]
    changed = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert changed == {
        ("pods/binding", "create"),
        ("pods/status", "patch"),
        ("persistentvolumeclaims", "patch"),
        ("persistentvolumes", "patch"),
        ("events", "create"),
        ("events", "patch"),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }
    assert not {"secrets", "configmaps", names.FLUXJOBS} & {
        resource for rule in rules for resource in rule["resources"]
    }


def test_its_ports_are_values_and_every_probe_asks_the_port_of_health(chart: Chart) -> None:
    ports = {
        "metricsPort": 1001,
        "healthPort": 1000,
        "extender": {**EXTENDER, "port": 1002, "servicePort": 1003},
    }
    rendered = chart.render({"scheduler": {**ENABLED, **ports}})
    container = rendered.container(NAME, "scheduler")
    assert (flag(container["args"], "--health-port"), flag(container["args"], "--metrics-port")) == (
        ["1000"],
        ["1001"],
    )
    assert flag(container["args"], "--extender-port") == ["1002"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "health": 1000,
        "metrics": 1001,
        "extender": 1002,
    }
    assert [port["port"] for port in rendered.one("Service", NAME)["spec"]["ports"]] == [1001, 1003]
    assert {
        container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("startup", "liveness", "readiness")
    } == {"health"}


def test_two_of_it_are_spread_and_never_disrupted_at_once(chart: Chart, enabled: Rendered) -> None:
    spec = enabled.one("Deployment", NAME)["spec"]
    budget = enabled.one("PodDisruptionBudget", NAME)["spec"]
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert spec["replicas"] == 2
    assert spread["labelSelector"] == budget["selector"] == spec["selector"]
    alone = chart.render({"scheduler": {**ENABLED, "replicas": 1}})
    assert NAME not in {each["metadata"]["name"] for each in alone.all("PodDisruptionBudget")}
    assert "topologySpreadConstraints" not in dict(alone.pod_specs())[NAME]


def test_its_pods_pass_the_restricted_standard_and_set_requests(extending: Rendered) -> None:
    spec, container = dict(extending.pod_specs())[NAME], extending.container(NAME, "scheduler")
    assert spec["securityContext"] == dict(extending.pod_specs())["fluxqueue-queue"]["securityContext"]
    assert container["securityContext"] == extending.container("fluxqueue-queue", "queue")["securityContext"]
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]


def test_the_extender_serves_with_one_secret_and_verifies_clients_with_another(
    extending: Rendered, enabled: Rendered
) -> None:
    volumes = {
        volume["name"]: volume.get("secret") for volume in dict(extending.pod_specs())[NAME]["volumes"]
    }
    assert volumes["tls"]["secretName"] == "served"
    assert volumes["clients"]["secretName"] == "asked"
    assert [item["key"] for item in volumes["clients"]["items"]] == ["ca.crt"]
    assert volumes["tls"]["optional"] is volumes["clients"]["optional"] is True, (
        "pods are bound also while these are missing"
    )
    assert "extender" not in str(enabled.one("Deployment", NAME))


def test_cert_manager_issues_the_extenders_certificate(chart: Chart) -> None:
    extender = {"enabled": True, "clientCASecret": "asked"}
    rendered = chart.render(
        {"scheduler": {**ENABLED, "extender": extender}, "certificates": {"mode": "certManager"}}
    )
    certificate = rendered.one("Certificate", f"{NAME}-tls")["spec"]
    volumes = {volume["name"]: volume.get("secret") for volume in dict(rendered.pod_specs())[NAME]["volumes"]}
    assert volumes["tls"]["secretName"] == certificate["secretName"]
    assert f"{NAME}.fluxqueue-system.svc" in certificate["dnsNames"]
    webhook = rendered.one("Certificate", "fluxqueue-webhook-tls")["spec"]
    assert certificate["issuerRef"] == webhook["issuerRef"]


def test_the_scheduler_has_a_key_of_its_own_without_cert_manager(chart: Chart, enabled: Rendered) -> None:
    rendered = chart.render(
        {"scheduler": {**ENABLED, "extender": {"enabled": True, "clientCASecret": "asked"}}}
    )
    volumes = {volume["name"]: volume.get("secret") for volume in dict(rendered.pod_specs())[NAME]["volumes"]}
    assert (volumes["tls"]["secretName"], volumes["tls"]["optional"]) == (f"{NAME}-tls", True)
    assert volumes["metrics-tls"]["secretName"] == f"{NAME}-tls"
    for each in (rendered, enabled):
        assert flag(each.container("fluxqueue-queue", "queue")["args"], "--certificate-service") == [
            "fluxqueue-queue",
            NAME,
        ]


def test_an_extender_that_would_serve_everybody_is_refused(chart: Chart, extending: Rendered) -> None:
    extender = {key: value for key, value in EXTENDER.items() if key != "clientCASecret"}
    with pytest.raises(ValuesRefused, match=r"scheduler\.extender\.clientCASecret is empty"):
        chart.render({"scheduler": {**ENABLED, "extender": extender}})
    (file,) = flag(extending.container(NAME, "scheduler")["args"], "--extender-client-ca")
    (mounted,) = [
        each["mountPath"]
        for each in extending.container(NAME, "scheduler")["volumeMounts"]
        if each["name"] == "clients"
    ]
    assert file == f"{mounted}/ca.crt"


def test_the_policy_on_the_scheduler_concerns_its_own_identity_alone(chart: Chart, enabled: Rendered) -> None:
    (condition,) = _policy(enabled)["matchConditions"]
    assert (
        condition["expression"]
        == "request.userInfo.username == 'system:serviceaccount:fluxqueue-system:fluxqueue-scheduler'"
    )
    assert enabled.one("ValidatingAdmissionPolicyBinding", NAME)["spec"] == {
        "policyName": NAME,
        "validationActions": ["Deny"],
    }
    assert names.SCHEDULER_NAME in str(_policy(enabled)["validations"])
    other = chart.render({"scheduler": {**ENABLED, "serviceAccount": {"name": "binder"}}}, namespace="ns")
    (condition,) = _policy(other)["matchConditions"]
    assert condition["expression"].endswith("'system:serviceaccount:ns:binder'")
    assert other.one("ServiceAccount", "binder")
