"""Which requests the API server sends to the webhook, and what the policies refuse."""

import json
import re
from collections import Counter

import pytest
from support.chart_rendering import CHART, Chart, Json, Rendered, flag

from fluxqueue.api import names
from fluxqueue.fluxion.match.policies import read_policy
from fluxqueue.queue.model.owner_handles import HANDLES

QUEUE_USER = "system:serviceaccount:fluxqueue-system:fluxqueue-queue"

MINICLUSTERS = {"enabled": True, "namespaces": ["*"]}


def _webhook(rendered: Rendered, name: str = "fluxqueue-webhook") -> Json:
    (webhook,) = rendered.one("MutatingWebhookConfiguration", name)["webhooks"]
    return dict(webhook)


def _condition(spec: Json) -> str:
    (condition,) = spec["matchConditions"]
    return str(condition["expression"])


def _selector(rendered: Rendered, name: str = "fluxqueue") -> Json:
    return dict(_webhook(rendered, f"{name}-webhook")["namespaceSelector"])


def test_only_the_creation_of_pods_and_jobs_is_reviewed_without_side_effects(default: Rendered) -> None:
    webhook = _webhook(default)
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE"], ["pods"]),
        (["CREATE"], ["jobs"]),
    ]
    assert (webhook["sideEffects"], webhook["reinvocationPolicy"], webhook["failurePolicy"]) == (
        "None",
        "IfNeeded",
        "Fail",
    )
    assert webhook["timeoutSeconds"] <= 5


def test_pods_that_have_their_node_from_their_template_are_not_reviewed(default: Rendered) -> None:
    (selected,) = _webhook(default)["objectSelector"]["matchExpressions"]
    assert (selected["key"], selected["operator"], selected["values"]) == (
        names.PINNED_LABEL,
        "NotIn",
        [names.PINNED_VALUE],
    )
    assert names.PINNED_LABEL in names.ALLOCATION_KEYS, "the policies guard it"


def test_keys_of_the_queue_are_guarded_in_all_namespaces(default: Rendered) -> None:
    for kind in ("jobs", "pods", "bindings", "fluxjobs"):
        assert (
            "matchResources"
            not in default.one("ValidatingAdmissionPolicyBinding", f"fluxqueue-{kind}")["spec"]
        )


@pytest.mark.parametrize("namespaces", ["optIn", "allButSystem"])
def test_webhook_and_policies_call_the_same_namespaces_managed(chart: Chart, namespaces: str) -> None:
    rendered = chart.render({"namespaces": namespaces, "exemptNamespaces": ["cni"]})
    label, name = _selector(rendered)["matchExpressions"]
    for kind in ("jobs", "pods"):
        variables = rendered.one("ValidatingAdmissionPolicy", f"fluxqueue-{kind}")["spec"]["variables"]
        managed = next(each["expression"] for each in variables if each["name"] == "managed")
        assert (
            f"[?'{label['key']}'].orValue('') {'==' if label['operator'] == 'In' else '!='} "
            f"'{label['values'][0]}'"
        ) in managed
        listed = managed.split(" in ")[1].rstrip(")").replace("'", '"')
        assert json.loads(listed) == name["values"]


@pytest.mark.parametrize(
    ("namespaces", "wanted"), [("optIn", ("In", ["true"])), ("allButSystem", ("NotIn", ["false"]))]
)
def test_namespaces_opt_in_or_opt_out(chart: Chart, namespaces: str, wanted: tuple[str, list[str]]) -> None:
    managed, _ = _selector(chart.render({"namespaces": namespaces, "exemptionsAcknowledged": True}))[
        "matchExpressions"
    ]
    assert (managed["key"], managed["operator"], managed["values"]) == (names.MANAGED_LABEL, *wanted)


@pytest.mark.parametrize("namespaces", ["optIn", "allButSystem"])
def test_the_system_and_our_own_namespace_are_never_reviewed(chart: Chart, namespaces: str) -> None:
    rendered = chart.render({"namespaces": namespaces, "exemptNamespaces": ["cni"]}, namespace="batch")
    exempt = _selector(rendered)["matchExpressions"][1]
    assert exempt["key"] == "kubernetes.io/metadata.name"
    assert exempt["operator"] == "NotIn"
    assert set(exempt["values"]) == {*names.SYSTEM_NAMESPACES, "batch", "cni"}


def test_pods_may_opt_out_unless_an_administrator_enforces_the_queue(chart: Chart, default: Rendered) -> None:
    assert "-enforce-" not in default.text
    actions = {mode: _enforcing(chart.render({"enforcement": {"mode": mode}})) for mode in ("warn", "deny")}
    assert set(actions["deny"]) == {"pods", "templates", "cronjobs", "resize"}
    assert all(found == ["Deny"] for found in actions["deny"].values())
    assert actions["warn"] == {kind: ["Warn", "Audit"] for kind in actions["deny"]}


def _enforcing(rendered: Rendered) -> dict[str, list[str]]:
    """Return the validation actions by policy; each is bound to the namespaces that the webhook reviews."""
    found = [
        each
        for each in rendered.all("ValidatingAdmissionPolicyBinding")
        if "-enforce-" in each["metadata"]["name"]
    ]
    assert all(each["spec"]["matchResources"]["namespaceSelector"] == _selector(rendered) for each in found)
    return {
        each["metadata"]["name"].removeprefix("fluxqueue-enforce-"): each["spec"]["validationActions"]
        for each in found
    }


def test_the_webhook_is_reached_by_its_service_or_by_a_url(chart: Chart, default: Rendered) -> None:
    assert _webhook(default)["clientConfig"] == {
        "service": {
            "name": "fluxqueue-webhook",
            "namespace": "fluxqueue-system",
            "port": 443,
            "path": "/mutate",
        }
    }
    elsewhere = chart.render({"webhook": {"clientUrl": "https://127.0.0.1:4443/"}})
    assert _webhook(elsewhere)["clientConfig"] == {"url": "https://127.0.0.1:4443/mutate"}


def test_objects_of_our_own_kinds_are_validated_wherever_they_are(chart: Chart) -> None:
    (webhook,) = chart.render({"miniclusters": MINICLUSTERS}).one(
        "ValidatingWebhookConfiguration", "fluxqueue-webhook"
    )["webhooks"]
    assert [(rule["operations"], rule["resources"], rule["scope"]) for rule in webhook["rules"]] == [
        (["CREATE", "UPDATE"], ["fluxqueues", "fluxreservations"], "Cluster"),
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


def test_a_renewed_authority_keeps_its_key(chart: Chart) -> None:
    authority = chart.render({"certificates": {"mode": "certManager"}}).one("Certificate", "fluxqueue-ca")
    assert authority["spec"]["privateKey"]["rotationPolicy"] == "Never", (
        "cert-manager 1.18 and later changes it by default"
    )


def test_cert_manager_gets_the_certificate_to_inject(chart: Chart, default: Rendered) -> None:
    rendered = chart.render({"certificates": {"mode": "certManager"}})
    configuration = rendered.one("MutatingWebhookConfiguration", "fluxqueue-webhook")
    namespace, name = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].split("/")
    certificate = rendered.one("Certificate", name)["spec"]
    assert namespace == "fluxqueue-system"
    assert "fluxqueue-webhook.fluxqueue-system.svc" in certificate["dnsNames"]
    assert [volume["secret"]["secretName"] for volume in _tls_volumes(rendered, "fluxqueue-webhook")] == [
        certificate["secretName"]
    ]
    assert (
        rendered.one("Issuer", certificate["issuerRef"]["name"])["spec"]["ca"]["secretName"] == "fluxqueue-ca"
    )
    assert default.all("Certificate") == []


def test_an_issuer_of_the_cluster_s_own_is_used_alone(chart: Chart) -> None:
    issuer = {"name": "corporate", "kind": "ClusterIssuer"}
    rendered = chart.render({"certificates": {"mode": "certManager", "certManager": {"issuerRef": issuer}}})
    certificates = rendered.all("Certificate")
    assert {each["metadata"]["name"] for each in certificates} == {
        "fluxqueue-webhook-tls",
        "fluxqueue-queue-tls",
        "fluxqueue-postgres-tls",
    }
    assert all(each["spec"]["issuerRef"] == {"group": "cert-manager.io", **issuer} for each in certificates)
    assert rendered.all("Issuer") == []


def _tls_volumes(rendered: Rendered, workload: str) -> list[Json]:
    return [volume for volume in dict(rendered.pod_specs())[workload]["volumes"] if volume["name"] == "tls"]


def test_the_policy_on_fluxjobs_makes_an_exception_for_the_queue_alone(
    chart: Chart, default: Rendered
) -> None:
    def exception(rendered: Rendered, name: str) -> str:
        (condition,) = rendered.one("ValidatingAdmissionPolicy", name)["spec"]["matchConditions"]
        return str(condition["expression"])

    assert exception(default, "fluxqueue-fluxjobs") == f"request.userInfo.username != '{QUEUE_USER}'"
    assert default.one("ServiceAccount", QUEUE_USER.rsplit(":", 1)[1])
    other = chart.render({"queue": {"serviceAccount": {"name": "hpc"}}}, release="batch", namespace="ns")
    assert (
        exception(other, "batch-fluxqueue-fluxjobs")
        == "request.userInfo.username != 'system:serviceaccount:ns:hpc'"
    )
    assert other.one("ServiceAccount", "hpc")


@pytest.mark.parametrize("policy", ["jobs", "pods"])
def test_the_policies_make_an_exception_for_the_queue_s_changes_alone(chart: Chart, policy: str) -> None:
    for values, user in (
        ({}, QUEUE_USER),
        ({"queue": {"serviceAccount": {"name": "hpc"}}}, QUEUE_USER.replace("fluxqueue-queue", "hpc")),
    ):
        spec = chart.render(values).one("ValidatingAdmissionPolicy", f"fluxqueue-{policy}")["spec"]
        variables = {each["name"]: each["expression"] for each in spec["variables"]}
        assert variables["byTheQueue"] == f"request.userInfo.username == '{user}'"
        assert variables["changedByTheQueue"] == "variables.byTheQueue && request.operation == 'UPDATE'"
        assert _condition(spec).startswith(f"request.userInfo.username == '{user}' ? ")


def test_of_owners_of_gangs_the_queue_changes_only_what_the_code_writes(default: Rendered) -> None:
    spec = default.one("ValidatingAdmissionPolicy", "fluxqueue-owners")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert set(rule["apiGroups"]) == {handle.group for handle in HANDLES}
    assert (rule["apiVersions"], rule["operations"], rule["resources"]) == (["*"], ["UPDATE"], ["*"])
    assert _condition(spec) == f"request.userInfo.username == '{QUEUE_USER}'"
    _, fields, metadata = (each["expression"] for each in spec["validations"])
    assert {handle.field for handle in HANDLES} == {("suspend",), ("runPolicy", "suspend")}
    assert set(re.findall(r"'([^']*)'", fields)) == {"suspend", "runPolicy"}
    assert set(re.findall(r"'([^']*)'", metadata)) == {names.SUSPENDED_BY_QUEUE_LABEL}
    binding = default.one("ValidatingAdmissionPolicyBinding", "fluxqueue-owners")["spec"]
    assert binding == {"policyName": "fluxqueue-owners", "validationActions": ["Deny"]}


@pytest.mark.parametrize("policy", ["jobs", "pods", "queue", "bindings", "fluxjobs", "owners"])
def test_each_policy_has_one_match_condition_because_the_api_server_computes_all_of_them(
    default: Rendered, policy: str
) -> None:
    assert _condition(default.one("ValidatingAdmissionPolicy", f"fluxqueue-{policy}")["spec"])


def test_creations_and_changes_of_jobs_and_pods_meet_one_policy_each(default: Rendered) -> None:
    met = Counter(
        (operation, resource)
        for policy in default.all("ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for operation in rule["operations"]
        for resource in rule["resources"]
    )
    assert (
        met["CREATE", "jobs"]
        == met["UPDATE", "jobs"]
        == met["UPDATE", "jobs/status"]
        == met["DELETE", "jobs"]
        == 1
    )
    assert (
        met["CREATE", "pods"]
        == met["UPDATE", "pods"]
        == met["UPDATE", "pods/status"]
        == met["DELETE", "pods"]
        == 1
    )


@pytest.mark.parametrize("policy", ["jobs", "pods"])
def test_the_policies_guard_every_allocation_key_of_the_code(default: Rendered, policy: str) -> None:
    spec = default.one("ValidatingAdmissionPolicy", f"fluxqueue-{policy}")["spec"]
    keys = str(list(names.ALLOCATION_KEYS))
    assert next(v["expression"] for v in spec["variables"] if v["name"] == "keys") == keys
    assert (
        _condition(spec).count(keys) == len(re.findall(r"\['fluxqueue/allocation', ", _condition(spec))) > 1
    )


def test_bindings_carry_no_allocation_key_of_the_code(default: Rendered) -> None:
    spec = default.one("ValidatingAdmissionPolicy", "fluxqueue-bindings")["spec"]
    submitter, validation = spec["validations"]
    assert names.SUBMITTED_BY_ANNOTATION in submitter["expression"]
    assert validation["expression"].startswith(str(list(names.ALLOCATION_KEYS)))
    assert str(list(names.ALLOCATION_KEYS)) in _condition(spec)


def test_policy_and_webhook_agree_on_who_creates_allocated_pods(chart: Chart) -> None:
    def told(rendered: Rendered) -> tuple[str, list[str]]:
        arguments = rendered.container("fluxqueue-webhook", "webhook")["args"]
        return _condition(rendered.one("ValidatingAdmissionPolicy", "fluxqueue-pods")["spec"]), arguments

    for controllers in (list(names.JOB_CONTROLLERS), ["system:serviceaccount:vc:jobs"]):
        expression, arguments = told(chart.render({"webhook": {"jobControllers": controllers}}))
        assert flag(arguments, "--job-controller") == controllers
        assert all(f"'{controller}'" in expression for controller in controllers)


def test_the_identities_trusted_by_default_are_the_code_s(default: Rendered) -> None:
    arguments = default.container("fluxqueue-webhook", "webhook")["args"]
    assert tuple(flag(arguments, "--job-controller")) == names.JOB_CONTROLLERS
    assert tuple(flag(arguments, "--daemonset-controller")) == names.DAEMONSET_CONTROLLERS


def test_configuration_and_webhook_agree_on_daemonset_controllers(chart: Chart) -> None:
    for controllers in (list(names.DAEMONSET_CONTROLLERS), ["system:serviceaccount:kruise:daemons"]):
        rendered = chart.render({"webhook": {"daemonSetControllers": controllers}})
        expression = next(
            c["expression"]
            for c in _webhook(rendered)["matchConditions"]
            if c["name"] == "not-a-daemonset-pod"
        )
        assert all(f'"{controller}"' in expression for controller in controllers)
        assert (
            flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--daemonset-controller")
            == controllers
        )


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
