"""Whom the API server asks us about, and what it refuses on our behalf."""

import json

import pytest
from chart_rendering import CHART, Chart, Json, Rendered, flag

from fluxqueue.api import names
from fluxqueue.fluxion.policies import read_policy

QUEUE_USER = "system:serviceaccount:fluxqueue-system:fluxqueue-queue"


def _webhook(rendered: Rendered, name: str = "fluxqueue-webhook") -> Json:
    (webhook,) = rendered.one("MutatingWebhookConfiguration", name)["webhooks"]
    return dict(webhook)


def _selectors(rendered: Rendered, name: str = "fluxqueue") -> list[Json]:
    return [
        _webhook(rendered, f"{name}-webhook")["namespaceSelector"],
        *(
            rendered.one("ValidatingAdmissionPolicyBinding", f"{name}-{kind}")["spec"]["matchResources"]["namespaceSelector"]
            for kind in ("jobs", "pods")
        ),
    ]


def test_only_the_creation_of_pods_and_jobs_is_reviewed_without_side_effects(default: Rendered) -> None:
    webhook = _webhook(default)
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [(["CREATE"], ["pods"]), (["CREATE"], ["jobs"])]
    assert (webhook["sideEffects"], webhook["reinvocationPolicy"], webhook["failurePolicy"]) == ("None", "IfNeeded", "Fail")
    assert webhook["timeoutSeconds"] <= 5


@pytest.mark.parametrize("namespaces", ["optIn", "allButSystem"])
def test_webhook_and_policies_cover_the_same_namespaces(chart: Chart, namespaces: str) -> None:
    first, *others = _selectors(chart.render({"namespaces": namespaces}))
    assert all(other == first for other in others)


@pytest.mark.parametrize(("namespaces", "wanted"), [("optIn", ("In", ["true"])), ("allButSystem", ("NotIn", ["false"]))])
def test_namespaces_opt_in_or_opt_out(chart: Chart, namespaces: str, wanted: tuple[str, list[str]]) -> None:
    managed, _ = _selectors(chart.render({"namespaces": namespaces}))[0]["matchExpressions"]
    assert (managed["key"], managed["operator"], managed["values"]) == (names.MANAGED_LABEL, *wanted)


@pytest.mark.parametrize("namespaces", ["optIn", "allButSystem"])
def test_the_system_and_ourselves_are_never_asked_about(chart: Chart, namespaces: str) -> None:
    rendered = chart.render({"namespaces": namespaces, "exemptNamespaces": ["cni"]}, namespace="batch")
    exempt = _selectors(rendered)[0]["matchExpressions"][1]
    assert exempt["key"] == "kubernetes.io/metadata.name"
    assert exempt["operator"] == "NotIn"
    assert set(exempt["values"]) == {*names.SYSTEM_NAMESPACES, "batch", "cni"}


def test_the_webhook_is_reached_by_its_service_or_by_a_url(chart: Chart, default: Rendered) -> None:
    assert _webhook(default)["clientConfig"] == {
        "service": {"name": "fluxqueue-webhook", "namespace": "fluxqueue-system", "port": 443, "path": "/mutate"}
    }
    elsewhere = chart.render({"webhook": {"clientUrl": "https://127.0.0.1:4443/"}})
    assert _webhook(elsewhere)["clientConfig"] == {"url": "https://127.0.0.1:4443/mutate"}


def test_objects_of_our_own_kinds_are_validated_wherever_they_are(chart: Chart, default: Rendered) -> None:
    (webhook,) = default.one("ValidatingWebhookConfiguration", "fluxqueue-webhook")["webhooks"]
    assert [(rule["operations"], rule["resources"], rule["scope"]) for rule in webhook["rules"]] == [
        (["CREATE", "UPDATE"], ["fluxqueues"], "Cluster"),
        (["CREATE", "UPDATE"], ["miniclusters"], "Namespaced"),
    ]
    assert "namespaceSelector" not in webhook
    assert webhook["clientConfig"]["service"]["path"] == "/validate"
    elsewhere = chart.render({"webhook": {"clientUrl": "https://127.0.0.1:4443/"}})
    (webhook,) = elsewhere.one("ValidatingWebhookConfiguration", "fluxqueue-webhook")["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:4443/validate"}


def test_a_queue_can_be_held_or_made_while_no_webhook_answers(default: Rendered) -> None:
    (webhook,) = default.one("ValidatingWebhookConfiguration", "fluxqueue-webhook")["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("mode", ["selfManaged", "certManager"])
def test_nothing_is_rendered_where_others_write_the_authority(chart: Chart, mode: str) -> None:
    assert "caBundle" not in chart.render({"certificates": {"mode": mode}}).text


def test_cert_manager_is_told_which_certificate_to_inject(chart: Chart, default: Rendered) -> None:
    rendered = chart.render({"certificates": {"mode": "certManager"}})
    configuration = rendered.one("MutatingWebhookConfiguration", "fluxqueue-webhook")
    namespace, name = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].split("/")
    certificate = rendered.one("Certificate", name)["spec"]
    assert namespace == "fluxqueue-system"
    assert "fluxqueue-webhook.fluxqueue-system.svc" in certificate["dnsNames"]
    assert {volume["secret"]["secretName"] for volume in _tls_volumes(rendered)} == {certificate["secretName"]}
    assert rendered.one("Issuer", certificate["issuerRef"]["name"])["spec"]["ca"]["secretName"] == "fluxqueue-ca"
    assert default.all("Certificate") == []


def test_an_issuer_of_the_cluster_s_own_is_used_alone(chart: Chart) -> None:
    issuer = {"name": "corporate", "kind": "ClusterIssuer"}
    rendered = chart.render({"certificates": {"mode": "certManager", "certManager": {"issuerRef": issuer}}})
    (certificate,) = rendered.all("Certificate")
    assert certificate["spec"]["issuerRef"] == {"group": "cert-manager.io", **issuer}
    assert rendered.all("Issuer") == []


def _tls_volumes(rendered: Rendered) -> list[Json]:
    return [volume for _, spec in rendered.pod_specs() for volume in spec["volumes"] if volume["name"] == "tls"]


@pytest.mark.parametrize("policy", ["jobs", "pods", "fluxjobs"])
def test_the_policies_make_an_exception_for_the_queue_alone(chart: Chart, default: Rendered, policy: str) -> None:
    def exception(rendered: Rendered, name: str) -> str:
        conditions = rendered.one("ValidatingAdmissionPolicy", name)["spec"]["matchConditions"]
        return str(next(c["expression"] for c in conditions if c["name"] == "not-ours"))

    assert exception(default, f"fluxqueue-{policy}") == f"request.userInfo.username != '{QUEUE_USER}'"
    assert default.one("ServiceAccount", QUEUE_USER.rsplit(":", 1)[1])
    other = chart.render({"queue": {"serviceAccount": {"name": "hpc"}}}, release="batch", namespace="ns")
    assert exception(other, f"batch-fluxqueue-{policy}") == "request.userInfo.username != 'system:serviceaccount:ns:hpc'"
    assert other.one("ServiceAccount", "hpc")


@pytest.mark.parametrize("policy", ["jobs", "pods"])
def test_the_policies_guard_every_allocation_key_of_the_code(default: Rendered, policy: str) -> None:
    variables = default.one("ValidatingAdmissionPolicy", f"fluxqueue-{policy}")["spec"]["variables"]
    guarded = next(v["expression"] for v in variables if v["name"] == "keys")
    assert guarded == str(list(names.ALLOCATION_KEYS))


def test_who_may_create_allocated_pods_is_the_same_to_the_policy_and_to_the_webhook(chart: Chart) -> None:
    def told(rendered: Rendered) -> tuple[str, list[str]]:
        conditions = rendered.one("ValidatingAdmissionPolicy", "fluxqueue-pods")["spec"]["matchConditions"]
        arguments = rendered.container("fluxqueue-webhook", "webhook")["args"]
        return next(c["expression"] for c in conditions if c["name"] == "not-job-controller-create"), arguments

    for controllers in (list(names.JOB_CONTROLLERS), ["system:serviceaccount:vc:jobs"]):
        expression, arguments = told(chart.render({"webhook": {"jobControllers": controllers}}))
        assert flag(arguments, "--job-controller") == controllers
        assert all(f"'{controller}'" in expression for controller in controllers)


def test_the_identities_trusted_by_default_are_the_code_s(default: Rendered) -> None:
    arguments = default.container("fluxqueue-webhook", "webhook")["args"]
    assert tuple(flag(arguments, "--job-controller")) == names.JOB_CONTROLLERS
    assert tuple(flag(arguments, "--daemonset-controller")) == names.DAEMONSET_CONTROLLERS


def test_who_makes_daemonset_pods_is_the_same_to_the_configuration_and_to_the_webhook(chart: Chart) -> None:
    for controllers in (list(names.DAEMONSET_CONTROLLERS), ["system:serviceaccount:kruise:daemons"]):
        rendered = chart.render({"webhook": {"daemonSetControllers": controllers}})
        expression = next(c["expression"] for c in _webhook(rendered)["matchConditions"] if c["name"] == "not-a-daemonset-pod")
        assert all(f'"{controller}"' in expression for controller in controllers)
        assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--daemonset-controller") == controllers


@pytest.mark.parametrize("where", ["FluxQueue", "values"])
def test_match_policies_are_those_the_matcher_knows(default: Rendered, where: str) -> None:
    if where == "FluxQueue":
        crd = default.one("CustomResourceDefinition", f"{names.FLUXQUEUES}.{names.GROUP}")
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        offered = spec["properties"]["matchPolicy"]["enum"]
    else:
        schema = json.loads((CHART / "values.schema.json").read_text())
        offered = schema["properties"]["queue"]["properties"]["config"]["properties"]["policy"]["enum"]
    assert {read_policy(name).name for name in offered} == set(offered)
