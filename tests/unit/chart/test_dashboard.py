"""The chart with the dashboard: what it may, who reaches it, with which certificate."""

from __future__ import annotations

import pytest
from support.chart_rendering import Chart, Json, Rendered, ValuesRefused

ON: Json = {"dashboard": {"enabled": True}}
PROXY: Json = {
    "dashboard": {
        "enabled": True,
        "proxy": {
            "secretName": "sso",
            "userHeader": "X-User",
            "impersonate": {"users": ["alice"], "groups": ["team-a"]},
        },
    }
}


def arguments(rendered: Rendered, name: str = "fluxqueue-dashboard") -> list[str]:
    found: list[str] = rendered.one("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def rules(rendered: Rendered) -> list[Json]:
    found: list[Json] = rendered.one("ClusterRole", "fluxqueue-dashboard")["rules"]
    return found


def test_without_the_value_there_is_nothing_of_it(chart: Chart) -> None:
    rendered = chart.render({})
    names = [
        each["metadata"]["name"]
        for kind in ("Deployment", "Service", "ClusterRole", "NetworkPolicy")
        for each in rendered.all(kind)
    ]
    assert not [name for name in names if "dashboard" in name]


def test_it_only_looks_and_asks_who_somebody_is(chart: Chart) -> None:
    allowed = {
        (resource, verb)
        for rule in rules(chart.render(ON))
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    reads = {"fluxjobs", "fluxqueues", "fluxaccounts", "fluxreservations", "nodes"}
    assert allowed == {
        *((resource, verb) for resource in reads for verb in ("list", "watch")),
        ("tokenreviews", "create"),
        ("subjectaccessreviews", "create"),
    }
    assert not [each for each in chart.render(ON).all("Role") if "dashboard" in each["metadata"]["name"]]


def test_it_impersonates_only_whom_the_values_name(chart: Chart) -> None:
    rendered = chart.render(PROXY)
    named = {
        rule["resources"][0]: rule.get("resourceNames")
        for rule in rules(rendered)
        if rule["verbs"] == ["impersonate"]
    }
    assert named == {"users": ["alice"], "groups": ["team-a", "system:authenticated"]}
    assert "--impersonate" in arguments(rendered)
    only_looks = chart.render({"dashboard": {"enabled": True, "proxy": {"secretName": "sso"}}})
    assert "--impersonate" not in arguments(only_looks)
    assert not [rule for rule in rules(only_looks) if "impersonate" in rule["verbs"]]


@pytest.mark.parametrize("named", [{"groups": ["system:masters"]}, {"users": ["system:admin"]}])
def test_the_cluster_s_own_identities_cannot_be_named(named: Json, chart: Chart) -> None:
    with pytest.raises(ValuesRefused):
        chart.render({"dashboard": {"enabled": True, "proxy": {"secretName": "sso", "impersonate": named}}})


def test_the_proxy_s_secret_is_a_file_and_no_argument(chart: Chart) -> None:
    found = arguments(chart.render(PROXY))
    assert found[found.index("--proxy-secret-file") + 1] == "/etc/fluxqueue-proxy/secret"
    assert found[found.index("--proxy-user-header") + 1] == "X-User"
    assert "--proxy-secret-file" not in arguments(chart.render(ON))


@pytest.mark.parametrize(
    ("values", "secret"),
    [
        ({}, "fluxqueue-dashboard-tls"),
        ({"certificates": {"mode": "certManager"}}, "fluxqueue-dashboard-tls"),
        ({"dashboard": {"enabled": True, "tlsSecret": "ours"}}, "ours"),
    ],
)
def test_it_serves_with_the_certificate_of_the_installation(chart: Chart, values: Json, secret: str) -> None:
    rendered = chart.render({**ON, **values})
    pod = rendered.one("Deployment", "fluxqueue-dashboard")["spec"]["template"]["spec"]
    assert next(each for each in pod["volumes"] if each["name"] == "tls")["secret"]["secretName"] == secret
    issued = [each["spec"]["secretName"] for each in rendered.all("Certificate")]
    assert ("fluxqueue-dashboard-tls" in issued) is ("certificates" in values)
    assert ("fluxqueue-dashboard" in arguments(rendered, "fluxqueue-queue")) is (values == {})


def test_the_queue_s_own_certificate_names_the_service(chart: Chart) -> None:
    assert "fluxqueue-dashboard" in arguments(chart.render(ON), "fluxqueue-queue")
    assert "fluxqueue-dashboard" not in arguments(chart.render({}), "fluxqueue-queue")


def test_people_reach_it_and_it_reaches_the_queue(chart: Chart) -> None:
    ingress = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    known = {"dashboardFrom": [ingress], "apiServerCIDRs": ["10.0.0.0/28"]}
    found = chart.render({**ON, "networkPolicy": known}).all("NetworkPolicy")
    policies = {each["metadata"]["name"]: each["spec"]["ingress"] for each in found}
    assert ingress in [peer for rule in policies["fluxqueue-dashboard"] for peer in rule.get("from", [])]
    assert [
        rule
        for rule in chart.render(ON).one("NetworkPolicy", "fluxqueue-dashboard")["spec"]["ingress"]
        if not rule.get("from")
    ]
    peers = [peer for rule in policies["fluxqueue-queue"] for peer in rule.get("from", [])]
    assert "dashboard" in [
        peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
        for peer in peers
    ]


def test_there_is_one_replica_because_sessions_are_in_memory(chart: Chart) -> None:
    deployment = chart.render(ON).one("Deployment", "fluxqueue-dashboard")["spec"]
    assert deployment["replicas"] == 1
    container = deployment["template"]["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert deployment["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_map_is_grouped_by_the_levels_of_the_topology(chart: Chart) -> None:
    levels = {"queue": {"config": {"topologyLevels": [{"name": "block", "label": "example.com/block"}]}}}
    found = arguments(chart.render({**ON, **levels}))
    assert [found[index + 1] for index, each in enumerate(found) if each == "--level"] == [
        "example.com/block"
    ]
