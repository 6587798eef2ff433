"""Who may reach which port: the policies, evaluated as Kubernetes defines them."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest
from support.chart_rendering import NAMESPACE, Chart, Json, Rendered

EVERYTHING: Json = {
    "postgres": {"backup": {"enabled": True}},
    "scheduler": {"enabled": True, "extender": {"enabled": True, "clientCASecret": "clients"}},
}
API_SERVER = "10.0.0.5"
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
KNOWN: Json = {
    **EVERYTHING,
    "networkPolicy": {"apiServerCIDRs": ["10.0.0.0/28"], "metricsFrom": [PROMETHEUS]},
}


def _selects(selector: Json, labels: Json) -> bool:
    assert set(selector) <= {"matchLabels"}
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _is(peer: Json, source: Json | str) -> bool:
    if "ipBlock" in peer:
        return isinstance(source, str) and ip_address(source) in ip_network(peer["ipBlock"]["cidr"])
    if isinstance(source, str):
        return False
    same = source["namespace"] == NAMESPACE
    inside = (
        _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source["namespace"]})
        if "namespaceSelector" in peer
        else same
    )
    return inside and _selects(peer.get("podSelector", {}), source["labels"])


def _pod(component: str, namespace: str = NAMESPACE) -> Json:
    own = {
        "app.kubernetes.io/name": "fluxqueue",
        "app.kubernetes.io/instance": "fluxqueue",
        "app.kubernetes.io/component": component,
    }
    return {"namespace": namespace, "labels": own}


def _admitting(rendered: Rendered, target: Json, port: str, source: Json | str) -> bool:
    """Return whether some policy lets a source in; a pod that no policy selects admits everybody."""
    policies = [
        policy["spec"]
        for policy in rendered.all("NetworkPolicy")
        if _selects(policy["spec"]["podSelector"], target["labels"])
    ]
    rules = [rule for spec in policies for rule in spec.get("ingress", [])]
    return not policies or any(
        port in [each["port"] for each in rule["ports"]]
        and ("from" not in rule or any(_is(peer, source) for peer in rule["from"]))
        for rule in rules
    )


STRANGER = {"namespace": "team-a", "labels": {}}
SCRAPER = {"namespace": "monitoring", "labels": {"app": "prometheus"}}


def _ports(rendered: Rendered) -> Iterator[tuple[str, str]]:
    """Yield component and name of every port that a container of the chart has."""
    for kind in ("Deployment", "StatefulSet"):
        for workload in rendered.all(kind):
            template = workload["spec"]["template"]
            for container in template["spec"]["containers"]:
                for port in container.get("ports", []):
                    yield template["metadata"]["labels"]["app.kubernetes.io/component"], port["name"]


@pytest.mark.parametrize("values", [EVERYTHING, KNOWN], ids=["addresses unknown", "addresses known"])
def test_postgres_is_reached_by_the_queue_and_its_backup_alone(chart: Chart, values: Json) -> None:
    rendered = chart.render(values)
    sources = {
        name: _admitting(rendered, _pod("postgres"), "postgres", _pod(name))
        for name in ("queue", "backup", "webhook", "scheduler")
    }
    assert sources == {"queue": True, "backup": True, "webhook": False, "scheduler": False}
    for source in (STRANGER, SCRAPER, API_SERVER, _pod("queue", namespace="team-a")):
        assert not _admitting(rendered, _pod("postgres"), "postgres", source)


def test_every_other_port_is_reached_from_where_it_is_called(chart: Chart) -> None:
    rendered = chart.render(KNOWN)
    reached = {
        (component, port): [
            name for name, source in _SOURCES.items() if _admitting(rendered, _pod(component), port, source)
        ]
        for component, port in _ports(rendered)
        if component != "postgres"
    }
    assert {key: reached[key] for key in reached if key[1] not in ("health", "metrics")} == {
        ("webhook", "https"): ["API server", "Prometheus", "helm test"],
        ("scheduler", "extender"): ["API server", "helm test"],
    }
    assert all(names == [] for (_, port), names in reached.items() if port == "health"), (
        "the kubelet needs no rule"
    )
    assert {names for (_, port), found in reached.items() if port == "metrics" for names in found} == {
        "API server",
        "Prometheus",
        "helm test",
    }


_SOURCES: dict[str, Json | str] = {
    "API server": API_SERVER,
    "Prometheus": SCRAPER,
    "helm test": _pod("test"),
    "a stranger": STRANGER,
    "the queue": _pod("queue"),
}


def test_while_the_api_server_s_addresses_are_unknown_only_what_it_calls_is_open(chart: Chart) -> None:
    rendered = chart.render(EVERYTHING)
    open_ = {
        (component, port)
        for component, port in _ports(rendered)
        if _admitting(rendered, _pod(component), port, STRANGER)
    }
    assert open_ == {("webhook", "https"), ("scheduler", "extender")}


def test_metrics_are_reached_by_nobody_unless_somebody_is_named(chart: Chart) -> None:
    for values, reached in (
        (EVERYTHING, []),
        ({**EVERYTHING, "networkPolicy": {"metricsFrom": [PROMETHEUS]}}, ["Prometheus"]),
    ):
        rendered = chart.render(values)
        for component in ("queue", "scheduler"):
            found = [
                name
                for name, source in _SOURCES.items()
                if _admitting(rendered, _pod(component), "metrics", source)
            ]
            assert found == [*reached, "helm test"], component


def test_every_pod_of_the_chart_has_a_policy(chart: Chart) -> None:
    rendered = chart.render(EVERYTHING)
    selected = {
        policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for policy in rendered.all("NetworkPolicy")
    }
    assert selected == {"queue", "webhook", "scheduler", "postgres", "backup"}


def test_postgres_calls_nobody(chart: Chart, default: Rendered) -> None:
    def closed(rendered: Rendered) -> set[str]:
        specs = {policy["metadata"]["name"]: policy["spec"] for policy in rendered.all("NetworkPolicy")}
        return {
            name for name, spec in specs.items() if "Egress" in spec["policyTypes"] and not spec.get("egress")
        }

    assert closed(default) == closed(chart.render(EVERYTHING)) == {"fluxqueue-postgres"}


def test_network_policies_can_be_left_out(chart: Chart) -> None:
    assert chart.render({**EVERYTHING, "networkPolicy": {"enabled": False}}).all("NetworkPolicy") == []
