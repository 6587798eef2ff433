"""Clusters that are not the usual one: IPv6 only or both families, and OpenShift,
which gives pods their user.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.chart_rendering import Chart, Rendered, ValuesRefused, flag

EVERYTHING: dict[str, Any] = {
    "scheduler": {"enabled": True, "extender": {"enabled": True, "clientCASecret": "asked"}},
    "dashboard": {"enabled": True},
    "postgres": {"backup": {"enabled": True}},
}
HOSTS = {
    ("webhook", "--host"),
    ("queue", "--host"),
    ("fluxion", "--health-host"),
    ("scheduler", "--host"),
    ("dashboard", "--host"),
}
"""Containers and flags of what listens beyond loopback."""


def hosts(rendered: Rendered) -> set[str]:
    """Return where programs listen beyond loopback."""
    containers = {each["name"]: each for _, spec in rendered.pod_specs() for each in spec["containers"]}
    return {value for name, option in HOSTS for value in flag(containers[name]["args"], option)}


def pods(rendered: Rendered) -> dict[str, Any]:
    """Return the spec of every pod by the name of what makes it."""
    specs = dict(rendered.pod_specs())
    specs |= {each["metadata"]["name"]: each["spec"] for each in rendered.all("Pod")}
    specs |= {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in rendered.all("Job")}
    return specs | {
        each["metadata"]["name"]: each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for each in rendered.all("CronJob")
    }


@pytest.mark.parametrize(
    ("families", "host", "policy"),
    [
        (["IPv6"], "::", "SingleStack"),
        (["IPv6", "IPv4"], "::", "RequireDualStack"),
        (["IPv4", "IPv6"], "0.0.0.0", "RequireDualStack"),
        (["IPv4"], "0.0.0.0", "SingleStack"),
    ],
)
def test_services_and_listeners_follow_the_families(
    chart: Chart, families: list[str], host: str, policy: str
) -> None:
    rendered = chart.render({**EVERYTHING, "ipFamilies": families})
    assert hosts(rendered) == {host}
    services = rendered.all("Service")
    assert len(services) == 5
    assert [(each["spec"]["ipFamilies"], each["spec"]["ipFamilyPolicy"]) for each in services] == [
        (families, policy)
    ] * 5


def test_services_leave_the_families_to_the_cluster_by_default(chart: Chart) -> None:
    rendered = chart.render(EVERYTHING)
    assert hosts(rendered) == {"0.0.0.0"}
    assert not [
        each for each in rendered.all("Service") if {"ipFamilies", "ipFamilyPolicy"} & each["spec"].keys()
    ]


def test_an_address_that_is_named_stays(chart: Chart) -> None:
    rendered = chart.render({"ipFamilies": ["IPv6"], "webhook": {"host": "fd00::1"}})
    assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--host") == ["fd00::1"]


def test_postgres_listens_on_and_admits_both_families(default: Rendered) -> None:
    assert "listen_addresses=*" in default.container("fluxqueue-postgres", "postgres")["args"]
    assert "::/0" in default.one("ConfigMap", "fluxqueue-postgres")["data"]["pg_hba.conf"]


def test_ipv6_networks_of_the_api_server_are_accepted(chart: Chart) -> None:
    assert "fd00:10::/112" in chart.render({"networkPolicy": {"apiServerCIDRs": ["fd00:10::/112"]}}).text


@pytest.mark.parametrize("families", [["IPv6", "IPv6"], ["ipv6"], ["IPv4", "IPv6", "IPv4"]])
def test_families_that_no_service_can_have_are_refused(chart: Chart, families: list[str]) -> None:
    with pytest.raises(ValuesRefused, match="ipFamilies"):
        chart.render({"ipFamilies": families})


def test_openshift_gives_every_pod_its_user_and_group(chart: Chart) -> None:
    """restricted-v2 refuses ids outside the namespace's range,
    and asks for what the restricted standard of pods does.
    """
    specs = pods(chart.render({**EVERYTHING, "podSecurity": {"fixedIds": False}}))
    assert len(specs) == 9
    for name, spec in specs.items():
        assert (
            spec["securityContext"]
            .keys()
            .isdisjoint({"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"})
        ), name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            own = container["securityContext"]
            assert "runAsUser" not in own, name
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert not [each for each in spec.get("volumes", []) if "hostPath" in each], name


def test_every_pod_has_fixed_ids_by_default(chart: Chart) -> None:
    specs = pods(chart.render(EVERYTHING))
    assert [
        name
        for name, spec in specs.items()
        if not {"runAsUser", "runAsGroup", "fsGroup"} <= spec["securityContext"].keys()
    ] == []
