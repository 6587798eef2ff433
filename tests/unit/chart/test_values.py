"""Which values are accepted, and which are refused with a sentence."""

from typing import Any

import pytest
from support.chart_rendering import CHART, Chart, ValuesRefused


def _issued(duration: str, renew_before: str) -> dict[str, Any]:
    return {
        "certificates": {
            "mode": "certManager",
            "certManager": {"duration": duration, "renewBefore": renew_before},
        }
    }


def _priced(**per_hour: float) -> dict[str, Any]:
    return {"queue": {"config": {"prices": {"currency": "EUR", "entries": [{"perHour": per_hour}]}}}}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"webhok": {"port": 1}}, "webhok", id="misspelt"),
        pytest.param({"webhook": {"prot": 1}}, "prot", id="misspelt further down"),
        pytest.param(
            {"webhook": {"timeoutSeconds": 10}}, "timeoutSeconds", id="a webhook that may hang the cluster"
        ),
        pytest.param({"webhook": {"port": 0}}, "port", id="no port"),
        pytest.param(
            {"queue": {"config": {"waitingPerNamespace": {"workloads": 0}}}},
            "workloads",
            id="no work may wait",
        ),
        pytest.param(
            {"queue": {"config": {"waitingPerNamespace": {"requestsMb": 9}}}},
            "requestsMb",
            id="a unit that there is not",
        ),
        pytest.param(_priced(cpu=-1), "perHour.cpu", id="a negative price"),
        pytest.param(_priced(gpu=1), "perHour", id="a price of no resource"),
        pytest.param(
            {"queue": {"config": {"prices": {"list": []}}}}, "list", id="prices under an unknown name"
        ),
        pytest.param({"webhook": {"port": "9443"}}, "port", id="a port as text"),
        pytest.param({"webhook": {"failurePolicy": "fail"}}, "failurePolicy", id="wrong case"),
        pytest.param({"webhook": {"clientUrl": "http://127.0.0.1:1"}}, "clientUrl", id="without TLS"),
        pytest.param({"webhook": {"jobControllers": []}}, "jobControllers", id="nobody could start a pod"),
        pytest.param(
            {"webhook": {"jobControllers": ["x' || 'a' == 'a"]}},
            "jobControllers",
            id="a quote that would end the expression",
        ),
        pytest.param({"namespaces": "all"}, "namespaces", id="unknown selection"),
        pytest.param({"exemptNamespaces": ["Kube_System"]}, "exemptNamespaces", id="no namespace's name"),
        pytest.param(
            {"namespaces": "allButSystem"},
            "exemptNamespaces is empty: list there",
            id="a network that waits for the queue",
        ),
        pytest.param(
            _issued("720h", "720h"), "renewBefore .720h. has to be shorter", id="renewed without end"
        ),
        pytest.param(
            _issued("1h", "90m"), "renewBefore .90m. has to be shorter", id="renewed before it is issued"
        ),
        pytest.param(_issued("30m", "10m"), "less than 1h", id="too short for cert-manager"),
        pytest.param(_issued("2h", "1m"), "leave it 5m or more", id="renewed too late"),
        pytest.param(
            {"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}},
            "apiServerCIDRs",
            id="an address without its length",
        ),
        pytest.param({"networkPolicy": {"metricsFrom": [{}]}}, "metricsFrom", id="everybody"),
        pytest.param({"postgres": {"backup": {"schedule": "daily"}}}, "schedule", id="no time"),
        pytest.param({"postgres": {"backup": {"keep": 0}}}, "keep", id="a backup that is deleted at once"),
        pytest.param(
            {"monitoring": {"serviceMonitor": {"enabled": True}}},
            "metricsReadableBy is empty",
            id="metrics for nobody",
        ),
        pytest.param(
            {
                "monitoring": {"serviceMonitor": {"enabled": True}},
                "rbac": {"metricsReadableBy": ["monitoring:prometheus"]},
            },
            "metricsFrom is empty",
            id="metrics that nobody reaches",
        ),
        pytest.param(
            {"priorityClass": {"value": 2_000_000_000}}, "priorityClass", id="a priority of the system's"
        ),
        pytest.param({"certificates": {"mode": "none"}}, "mode", id="unknown certificates"),
        pytest.param({"queue": {"config": {"policy": "best"}}}, "policy", id="unknown match policy"),
        pytest.param(
            {"queue": {"config": {"cpuVertexMillicores": 0}}}, "cpuVertexMillicores", id="vertices of nothing"
        ),
        pytest.param({"queue": {"config": {"logLevel": "trace"}}}, "logLevel", id="unknown level"),
        pytest.param(
            {"queue": {"config": {"accounting": {"months": 0}}}}, "months", id="no month of records"
        ),
        pytest.param(
            {"queue": {"config": {"accounting": {"expired": "keep"}}}}, "expired", id="unknown end of a month"
        ),
        pytest.param({"queue": {"replicas": -1}}, "replicas", id="fewer than none"),
        pytest.param({"scheduler": {"default": "ours"}}, "default", id="unknown scheduler"),
        pytest.param(
            {"scheduler": {"default": "fluxion"}},
            "scheduler.enabled is false",
            id="pods for a scheduler that does not run",
        ),
        pytest.param(
            {"defaultQueue": {"spec": {"scheduler": "fluxion"}}},
            "scheduler.enabled is false",
            id="a queue that is nobody's",
        ),
        pytest.param(
            {"scheduler": {"extender": {"enabled": True}}},
            "scheduler.enabled is false",
            id="an extender that nobody serves",
        ),
        pytest.param(
            {"miniclusters": {"enabled": True}}, "miniclusters.namespaces", id="miniclusters nowhere"
        ),
        pytest.param(
            {"miniclusters": {"enabled": True, "namespaces": ["*", "a"]}},
            "leave one",
            id="everywhere and somewhere",
        ),
        pytest.param({"fullnameOverride": "Flux Queue"}, "fullnameOverride", id="no object's name"),
        pytest.param({"postgres": {"enabled": False}}, "existingSecret", id="no database at all"),
        pytest.param(
            {"database": {"existingSecret": {"name": "mine"}}}, "existingSecret", id="two databases"
        ),
        pytest.param(
            {"database": {"tls": {"mode": "verify-full"}}}, "mode", id="verification of a server that is ours"
        ),
        pytest.param(
            {"database": {"existingSecret": {"directKey": "direct"}}},
            "directKey",
            id="a way around a pooler that is not there",
        ),
        pytest.param(
            {"postgres": {"settings": {"max_connections; DROP": 1}}}, "DROP", id="no setting's name"
        ),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_name(
    chart: Chart, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValuesRefused, match=named):
        chart.render(values)


@pytest.mark.parametrize("said", [{"exemptNamespaces": ["cni"]}, {"exemptionsAcknowledged": True}])
def test_all_namespaces_are_managed_once_their_foundations_were_thought_of(
    chart: Chart, said: dict[str, Any]
) -> None:
    assert chart.render({"namespaces": "allButSystem", **said}).objects


@pytest.mark.parametrize(
    ("duration", "renew_before"), [("2160h", "720h"), ("1h30m", "1h29m59s"), ("60m", "5m")]
)
def test_a_certificate_may_be_renewed_at_any_time_before_its_end(
    chart: Chart, duration: str, renew_before: str
) -> None:
    assert chart.render(_issued(duration, renew_before)).all("Certificate")


@pytest.mark.parametrize(
    ("release", "values", "prefix"),
    [
        pytest.param("fluxqueue", {}, "fluxqueue", id="called like the chart"),
        pytest.param("batch", {}, "batch-fluxqueue", id="called otherwise"),
        pytest.param("batch", {"fullnameOverride": "hpc"}, "hpc", id="overridden"),
        pytest.param("batch", {"nameOverride": "flux"}, "batch-flux", id="the chart renamed"),
        pytest.param("a" * 53, {}, "a" * 40, id="as long as Helm allows"),
    ],
)
def test_every_object_is_called_after_the_full_name(
    chart: Chart, release: str, values: dict[str, Any], prefix: str
) -> None:
    elsewhere = {"CustomResourceDefinition", "FluxQueue"}
    rendered = chart.render(values, release=release)
    for found in rendered.objects:
        name = found["metadata"]["name"]
        if found["kind"] not in elsewhere:
            assert name.startswith(f"{prefix}-"), f"{found['kind']}/{name}"
            assert len(name) <= 63


def test_two_releases_share_no_object_but_the_kinds_themselves(chart: Chart) -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {(o["kind"], o["metadata"]["name"]) for o in chart.render(release=release).objects}

    assert {kind for kind, _ in names("one") & names("two")} == {"CustomResourceDefinition", "FluxQueue"}


def test_every_value_has_a_description() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    undescribed = []
    for above, line in zip(["", *lines], lines, strict=False):
        leaf = line.strip()
        if (
            not leaf
            or leaf.startswith(("#", "-"))
            or (leaf.endswith(":") and not above.strip().startswith("#"))
        ):
            continue
        if not above.strip().startswith("#"):
            undescribed.append(leaf)
    free_form = {"requests", "limits", "max_connections", "shared_buffers", "policy"}
    assert {line.split(":")[0] for line in undescribed} <= free_form


def test_our_labels_are_put_on_everything(chart: Chart) -> None:
    rendered = chart.render({"commonLabels": {"team": "hpc"}, "certificates": {"mode": "certManager"}})
    assert all(found["metadata"]["labels"]["team"] == "hpc" for found in rendered.objects)
