"""The values of a shared cluster close what the page on security says,
and an installation names each setting that is open.
"""

import subprocess
from typing import Any

import pytest
import yaml
from support.chart_rendering import CHART, SHARED, Chart, Rendered

from fluxqueue.api import names

ADDRESSES = {"networkPolicy": {"apiServerCIDRs": ["10.0.0.0/28"]}}


@pytest.fixture(scope="module")
def shared(chart: Chart) -> Rendered:
    return chart.render(ADDRESSES, files=[SHARED])


def open_settings(notes: str) -> list[str]:
    return [line.split()[1] for line in notes.splitlines() if line.startswith("- ")]


def test_helm_finds_nothing_wrong_with_the_values_of_a_shared_cluster(chart: Chart) -> None:
    done = subprocess.run(
        [chart.helm, "lint", CHART, "--strict", "--values", SHARED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_in_a_shared_cluster_only_exempt_identities_take_work_out_of_the_queue(shared: Rendered) -> None:
    bindings = {
        each["metadata"]["name"]: each["spec"] for each in shared.all("ValidatingAdmissionPolicyBinding")
    }
    enforcing = {name: spec for name, spec in bindings.items() if name.startswith("fluxqueue-enforce-")}
    assert enforcing
    assert all(spec["validationActions"] == ["Deny"] for spec in enforcing.values())


def test_in_a_shared_cluster_no_port_is_open_to_everybody(shared: Rendered) -> None:
    rules = [rule for policy in shared.all("NetworkPolicy") for rule in policy["spec"].get("ingress", [])]
    assert rules
    assert all(rule.get("from") for rule in rules)


def test_in_a_shared_cluster_nothing_is_readable_by_everybody(shared: Rendered) -> None:
    bindings = [*shared.all("RoleBinding"), *shared.all("ClusterRoleBinding")]
    assert not [subject for each in bindings for subject in each["subjects"] if subject["kind"] == "Group"]


def test_in_a_shared_cluster_the_default_queue_bounds_every_namespace(shared: Rendered) -> None:
    spec = shared.one("FluxQueue", names.DEFAULT_QUEUE)["spec"]
    assert spec["maxPriority"] == 0
    assert spec["enforceDuration"] == {"enabled": True, "onlyStated": False}
    assert spec["defaultDurationSeconds"] <= spec["maxDurationSeconds"]
    assert set(spec["limits"]["perNamespace"]) == {"running", "nodes", "cores"}


def test_every_value_of_a_shared_cluster_is_one_of_the_chart() -> None:
    own, shared = (
        yaml.safe_load((CHART / name).read_text()) for name in ("values.yaml", "values-shared.yaml")
    )
    free = shared["defaultQueue"].pop("spec")
    assert set(own["defaultQueue"]["spec"]) < set(free)
    assert [(part, key) for part, values in shared.items() for key in values if key not in own[part]] == []


def test_an_installation_names_each_setting_that_is_open(chart: Chart) -> None:
    assert open_settings(chart.notes()) == [
        "enforcement.mode",
        "networkPolicy.apiServerCIDRs",
        "rbac.queuesReadableBy",
        "defaultQueue.spec.limits.perNamespace",
    ]


def test_an_installation_for_a_shared_cluster_has_nothing_open_but_what_the_site_knows(chart: Chart) -> None:
    assert open_settings(chart.notes(files=[SHARED])) == ["networkPolicy.apiServerCIDRs"]
    closed = chart.notes(ADDRESSES, files=[SHARED])
    assert open_settings(closed) == []
    assert "open" not in closed


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"enforcement": {"mode": "warn"}}, "enforcement.mode"),
        ({"networkPolicy": {"enabled": False}}, "networkPolicy.enabled"),
        ({"dashboard": {"enabled": True}}, "networkPolicy.dashboardFrom"),
        ({"rbac": {"queuesReadableBy": ["system:authenticated"]}}, "rbac.queuesReadableBy"),
        ({"rbac": {"historyReachableBy": ["system:authenticated"]}}, "rbac.historyReachableBy"),
        ({"webhook": {"failurePolicy": "Ignore"}}, "webhook.failurePolicy"),
        ({"defaultQueue": {"spec": {"maxPriority": 5}}}, "defaultQueue.spec.maxPriority"),
        ({"defaultQueue": {"spec": {"maxPriority": None}}}, "defaultQueue.spec.maxPriority"),
        (
            {"defaultQueue": {"spec": {"enforceDuration": {"enabled": False}}}},
            "defaultQueue.spec.enforceDuration",
        ),
        ({"defaultQueue": {"spec": {"limits": None}}}, "defaultQueue.spec.limits.perNamespace"),
        ({"miniclusters": {"enabled": True, "namespaces": ["*"]}}, "miniclusters.namespaces"),
    ],
)
def test_each_setting_that_is_opened_is_named(chart: Chart, values: dict[str, Any], named: str) -> None:
    over = {**values, "networkPolicy": {**ADDRESSES["networkPolicy"], **values.get("networkPolicy", {})}}
    assert open_settings(chart.notes(over, files=[SHARED])) == [named]
