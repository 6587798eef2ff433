"""Alerts and dashboard: every query reads metrics that the programs have,
and every alert has a section in the runbook.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from support.chart_rendering import CHART, Chart, Json, Rendered
from support.promql import Query, read_query
from support.promql_values import Sample, fires

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue import metrics as _queue_metrics
from fluxqueue.queue.tasks import control_tasks as _control_tasks
from fluxqueue.scheduler_plugin import metrics as scheduler_metrics
from fluxqueue.scheduler_plugin.extender import metrics as _extender_metrics
from fluxqueue.webhook.decide import AdmissionOutcome
from fluxqueue.webhook.metrics import WebhookMetrics

IMPORTED = (_queue_metrics, _control_tasks, _extender_metrics)
"""Modules whose import fills the registries."""

OF_A_TARGET = frozenset({"namespace", "job", "pod", "instance", "service", "endpoint", "container"})
"""Labels that Prometheus adds."""

MONITORED: Json = {
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")},
    "rbac": {"metricsReadableBy": ["monitoring:prometheus"]},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    },
    "scheduler": {"enabled": True},
    "postgres": {"backup": {"enabled": True}},
}


@dataclass(frozen=True)
class Exported:
    """The metrics of one program, as Prometheus stores them: name to labels."""

    labels: dict[str, frozenset[str]]


def _stored(collector: MetricWrapperBase) -> Iterator[tuple[str, frozenset[str]]]:
    labels = frozenset(collector._labelnames)
    match collector._type:
        case "counter":
            yield f"{collector._name}_total", labels
        case "histogram":
            yield f"{collector._name}_bucket", labels | {"le"}
            yield f"{collector._name}_sum", labels
            yield f"{collector._name}_count", labels
        case _:
            yield collector._name, labels


def _exported(registry: CollectorRegistry) -> Exported:
    found: dict[str, frozenset[str]] = {}
    for collector in list(registry._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            found.update(_stored(collector))
        else:
            found.update(
                {
                    sample.name: frozenset(sample.labels)
                    for family in collector.collect()
                    for sample in family.samples
                }
            )
    return Exported({**found, "up": frozenset()})


PROGRAMS = {
    "queue": _exported(REGISTRY),
    "webhook": _exported(WebhookMetrics().registry),
    "scheduler": _exported(scheduler_metrics.REGISTRY),
}


OF_THE_CLUSTER: dict[str, frozenset[str]] = {
    "container_memory_working_set_bytes": frozenset(),
    "kube_cronjob_created": frozenset({"cronjob"}),
    "kube_cronjob_status_last_successful_time": frozenset({"cronjob"}),
    "kube_pod_container_resource_limits": frozenset({"resource"}),
    "kube_pod_container_status_restarts_total": frozenset(),
}
"""What alerts read of the kubelets and of kube-state-metrics,
which have the metrics of every pod of the namespace."""


@pytest.fixture(scope="module")
def monitored(chart: Chart) -> Rendered:
    return chart.render(MONITORED)


def _alerts(rendered: Rendered) -> list[Json]:
    (rule,) = rendered.all("PrometheusRule")
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def _panels() -> list[Json]:
    (file,) = (CHART / "dashboards").glob("*.json")
    return list(json.loads(file.read_text())["panels"])


def _problems(query: Query) -> Iterator[str]:
    for metric, asked in query.asked:
        if metric in OF_THE_CLUSTER:
            assert asked["namespace"] == "fluxqueue-system"
            yield from (
                f"{metric}: has no label {label}"
                for label in set(asked) - OF_THE_CLUSTER[metric] - OF_A_TARGET
            )
            continue
        programs = [program for program in PROGRAMS if re.fullmatch(asked["job"], f"fluxqueue-{program}")]
        if not programs:
            yield f"{metric}: no program is the job {asked['job']!r}"
        for program in programs:
            labels = PROGRAMS[program].labels.get(metric)
            if labels is None:
                yield f"{metric}: {program} has no such metric"
            else:
                yield from (f"{metric}: has no label {label}" for label in set(asked) - labels - OF_A_TARGET)
    of_any = {metric: labels for exported in PROGRAMS.values() for metric, labels in exported.labels.items()}
    for labels, below in query.grouped:
        for metric in below:
            yield from (
                f"{metric}: has no label {label} to group by"
                for label in labels - of_any.get(metric, frozenset()) - OF_A_TARGET
            )


def test_every_alert_reads_metrics_that_its_program_has(monitored: Rendered) -> None:
    alerts = _alerts(monitored)
    assert len({alert["alert"] for alert in alerts}) == len(alerts) > 10
    for alert in alerts:
        query = read_query(alert["expr"])
        assert query.asked, alert["alert"]
        assert list(_problems(query)) == [], alert["alert"]


def test_every_panel_reads_metrics_that_its_program_has() -> None:
    queries = [(panel["title"], target["expr"]) for panel in _panels() for target in panel.get("targets", [])]
    assert len(queries) > 20
    for title, expression in queries:
        assert list(_problems(read_query(expression))) == [], title


def test_every_legend_shows_labels_that_its_query_keeps() -> None:
    for panel in _panels():
        for target in panel.get("targets", []):
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = {label for labels, _ in read_query(target["expr"]).grouped for label in labels}
            assert shown <= kept, panel["title"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('sum(rate(fluxqueue_grant_total{job="fluxqueue-queue"}[5m]))', "queue has no such metric"),
        ('fluxqueue_role{job="fluxqueue-webhook"}', "webhook has no such metric"),
        ('fluxqueue_workloads{job="fluxqueue-queue",status="pending"}', "has no label status"),
        ('sum by (kind) (fluxqueue_workloads{job="fluxqueue-queue"})', "has no label kind to group by"),
        ('fluxqueue_role{job="fluxqueue"}', "no program is the job"),
    ],
)
def test_a_wrong_query_is_found(expression: str, problem: str) -> None:
    assert [found for found in _problems(read_query(expression)) if problem in found]


VALUES: dict[tuple[str, str], set[str]] = {
    ("fluxqueue_role", "role"): {"leader", "follower", "starting"},
    ("fluxqueue_workloads", "state"): {str(state) for state in State},
    ("fluxqueue_webhook_reviews_total", "outcome"): {str(outcome) for outcome in AdmissionOutcome},
    ("fluxqueue_cycles_total", "result"): {"granted", "idle", "fluxion-away"},
    ("fluxqueue_webhook_certificate_reloads_total", "result"): {"loaded", "refused"},
    ("fluxqueue_releases_total", "result"): {
        "released",
        "failed",
        "refused",
        "broken",
        "gone",
        "edited",
        "unfit",
        "conflict",
        "unprepared",
    },
    ("scheduler_schedule_attempts_total", "result"): {"scheduled", "unschedulable", "error"},
}


def test_alerts_ask_for_values_that_occur(monitored: Rendered) -> None:
    asked = [
        (metric, label, value)
        for alert in _alerts(monitored)
        for metric, by in read_query(alert["expr"]).asked
        for label, value in by.items()
    ]
    for metric, label, value in asked:
        if label not in OF_A_TARGET and label != "code" and metric not in OF_THE_CLUSTER:
            assert any(re.fullmatch(value, known) for known in VALUES[metric, label]), (
                f"{metric}{{{label}={value}}}"
            )


def test_service_monitors_select_the_ports_that_services_have(monitored: Rendered) -> None:
    services = {service["metadata"]["name"]: service for service in monitored.all("Service")}
    monitors = monitored.all("ServiceMonitor")
    assert {monitor["metadata"]["name"] for monitor in monitors} == {
        f"fluxqueue-{program}" for program in PROGRAMS
    }
    for monitor in monitors:
        service = services[monitor["metadata"]["name"]]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == f"{service['metadata']['name']}.fluxqueue-system.svc"
        assert ("bearerTokenFile" in endpoint) == (endpoint["port"] == "metrics")


def test_the_dashboard_is_delivered_to_grafana_s_sidecar(monitored: Rendered) -> None:
    dashboard = monitored.one("ConfigMap", "fluxqueue-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["fluxqueue.json"])["title"] == "fluxqueue"
    assert len({panel["id"] for panel in _panels()}) == len(_panels())


def test_monitoring_is_off_until_it_is_asked_for(default: Rendered) -> None:
    kinds = {found["kind"] for found in default.objects}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}


def _anchors(page: str) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }


def test_every_alert_has_a_section_in_the_runbook(monitored: Rendered) -> None:
    anchors = _anchors((CHART.parent.parent / "docs" / "incidents.md").read_text())
    runbooks: list[Any] = [
        alert["annotations"]["runbook"].removeprefix("docs/incidents.md#") for alert in _alerts(monitored)
    ]
    assert set(runbooks) <= anchors


def queues(*roles: str | None, **more: Any) -> list[Sample]:
    """Replicas of the queue by their role; None for one that is not scraped."""
    target = {"namespace": "fluxqueue-system", "job": "fluxqueue-queue"}
    samples = []
    for number, role in enumerate(roles):
        pod = {**target, "pod": f"fluxqueue-queue-{number}"}
        samples.append(Sample("up", float(role is not None), pod))
        if role is not None:
            samples += [
                Sample("fluxqueue_role", float(role == each), {**pod, "role": each}, over=more)
                for each in ("starting", "follower", "leader")
            ]
    return samples


@pytest.mark.parametrize(
    ("roles", "fired"),
    [
        (["leader", "follower"], set()),
        (["leader", None], set()),
        (["follower", "follower"], {"FluxqueueNoLeader"}),
        (["starting"], {"FluxqueueNoLeader"}),
        (["follower", None], {"FluxqueueNotScraped"}),
        ([None, None], {"FluxqueueNotScraped"}),
        ([], {"FluxqueueNotScraped"}),
    ],
)
def test_no_leader_and_no_scrape_are_told_apart(
    monitored: Rendered, roles: list[str | None], fired: set[str]
) -> None:
    asked = {
        alert["alert"]: alert["expr"]
        for alert in _alerts(monitored)
        if alert["alert"] in ("FluxqueueNoLeader", "FluxqueueNotScraped")
    }
    assert {name for name, query in asked.items() if fires(query, queues(*roles))} == fired


def of_the_queue(name: str, value: float, **labels: str) -> Sample:
    return Sample(
        name,
        value,
        {"namespace": "fluxqueue-system", "job": "fluxqueue-queue", "pod": "fluxqueue-queue-0", **labels},
    )


def of_a_container(name: str, value: float = 0, **over: float) -> Sample:
    labels = {
        "namespace": "fluxqueue-system",
        "pod": "fluxqueue-queue-0",
        "container": "fluxion",
        "resource": "memory",
    }
    return Sample(name, value, labels, over)


def of_the_backup(name: str, value: float) -> Sample:
    return Sample(name, value, {"namespace": "fluxqueue-system", "cronjob": "fluxqueue-postgres-backup"})


def released(times: float) -> Sample:
    labels = {"namespace": "fluxqueue-system", "job": "fluxqueue-queue", "mode": "job", "result": "released"}
    return Sample("fluxqueue_releases_total", 9, labels, {"increase": times})


DAY = 86_400.0


@pytest.mark.parametrize(
    ("alert", "samples", "quiet"),
    [
        (
            "FluxqueueLeaderChanges",
            queues("leader", "follower", changes=4),
            queues("leader", "follower", changes=1),
        ),
        (
            "FluxqueueRestarts",
            [of_a_container("kube_pod_container_status_restarts_total", increase=3)],
            [of_a_container("kube_pod_container_status_restarts_total", increase=1)],
        ),
        (
            "FluxqueueMemory",
            [
                of_a_container("container_memory_working_set_bytes", 900),
                of_a_container("kube_pod_container_resource_limits", 1_000),
            ],
            [
                of_a_container("container_memory_working_set_bytes", 700),
                of_a_container("kube_pod_container_resource_limits", 1_000),
            ],
        ),
        ("FluxqueueNothingReleased", [of_the_queue("fluxqueue_could_fit_workloads", 2)], []),
        (
            "FluxqueueNothingReleased",
            [of_the_queue("fluxqueue_could_fit_workloads", 2), released(0)],
            [of_the_queue("fluxqueue_could_fit_workloads", 2), released(1)],
        ),
        (
            "FluxqueueManyPending",
            [of_the_queue("fluxqueue_pending_workloads", 10_001, work_namespace="a")],
            [of_the_queue("fluxqueue_pending_workloads", 9_000, work_namespace=each) for each in ("a", "b")],
        ),
        (
            "FluxqueueBackupOverdue",
            [
                of_the_backup("kube_cronjob_status_last_successful_time", 98 * DAY),
                of_the_backup("kube_cronjob_created", 1 * DAY),
            ],
            [
                of_the_backup("kube_cronjob_status_last_successful_time", 99 * DAY),
                of_the_backup("kube_cronjob_created", 1 * DAY),
            ],
        ),
        (
            "FluxqueueBackupOverdue",
            [of_the_backup("kube_cronjob_created", 98 * DAY)],
            [of_the_backup("kube_cronjob_created", 99 * DAY)],
        ),
        ("FluxqueueBackupOverdue", [], [of_the_backup("kube_cronjob_created", 99 * DAY)]),
    ],
)
def test_an_alert_fires_for_what_it_names_and_not_before(
    monitored: Rendered, alert: str, samples: list[Sample], quiet: list[Sample]
) -> None:
    (query,) = [each["expr"] for each in _alerts(monitored) if each["alert"] == alert]
    assert fires(query, samples, now=100 * DAY)
    assert not fires(query, quiet, now=100 * DAY)


def test_without_backups_of_the_chart_none_is_overdue(chart: Chart) -> None:
    rendered = chart.render({**MONITORED, "postgres": {"backup": {"enabled": False}}})
    assert "FluxqueueBackupOverdue" not in {alert["alert"] for alert in _alerts(rendered)}
