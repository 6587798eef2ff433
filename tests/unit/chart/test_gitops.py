"""What Argo CD and others apply who render the chart without a cluster:
the same bytes each time, and no hook of each sync.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.chart_rendering import Chart, Rendered, ValuesRefused

from fluxqueue.api import names

SECRETS = {"existingSecret": "own-postgres", "tls": {"existingSecret": "own-postgres-tls"}}
EVERYTHING: dict[str, Any] = {
    "gitOps": True,
    "postgres": {**SECRETS, "backup": {"enabled": True}},
    "scheduler": {"enabled": True, "extender": {"enabled": True, "clientCASecret": "asked"}},
    "dashboard": {"enabled": True},
    "enforcement": {"mode": "deny"},
    "reservations": {"enabled": True},
    "miniclusters": {"enabled": True, "namespaces": ["team"]},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")},
    "rbac": {"metricsReadableBy": ["monitoring:prometheus"]},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    },
}
AS_ARGO_CD_RENDERS = ("jobs.converged-computing.org/v1alpha1/FluxQueue",)
"""It names the kinds of the cluster, which has ours after the first sync."""


@pytest.fixture(scope="module")
def applied(chart: Chart) -> Rendered:
    return chart.render(EVERYTHING)


def annotations_of(thing: dict[str, Any]) -> dict[str, str]:
    return dict(thing["metadata"].get("annotations") or {})


@pytest.mark.parametrize("issuer", ["selfManaged", "certManager"])
def test_two_renderings_are_the_same_bytes(chart: Chart, issuer: str) -> None:
    values = {**EVERYTHING, "certificates": {"mode": issuer}}
    assert chart.render(values).text == chart.render(values).text


def test_a_sync_after_the_first_applies_the_same_objects(chart: Chart, applied: Rendered) -> None:
    assert chart.render(EVERYTHING, serves=AS_ARGO_CD_RENDERS).text == applied.text


def test_nothing_but_the_test_of_helm_is_a_hook(applied: Rendered) -> None:
    hooks = {
        thing["metadata"]["name"]
        for thing in applied.objects
        if any("/hook" in key for key in annotations_of(thing))
    }
    assert hooks == {"fluxqueue-test"}


def test_the_default_queue_is_applied_after_its_kind_and_never_pruned(applied: Rendered) -> None:
    queue = applied.one("FluxQueue", names.DEFAULT_QUEUE)
    assert int(annotations_of(queue)["argocd.argoproj.io/sync-wave"]) > 0
    assert "Prune=false" in annotations_of(queue)["argocd.argoproj.io/sync-options"]


def test_no_job_changes_its_template_in_place_with_a_new_version(applied: Rendered) -> None:
    assert applied.all("Job") == []
    assert {each["metadata"]["name"] for each in applied.all("CronJob")} == {
        "fluxqueue-postgres-backup",
        "fluxqueue-postgres-restore",
    }


def test_argo_cd_never_takes_helm_s_hook_for_its_own(default: Rendered) -> None:
    assert annotations_of(default.one("FluxQueue", names.DEFAULT_QUEUE))["argocd.argoproj.io/hook"] == "Skip"


@pytest.mark.parametrize(
    ("postgres", "named"),
    [
        ({}, "postgres.existingSecret is empty"),
        ({"existingSecret": "own-postgres"}, "postgres.tls.existingSecret is empty"),
    ],
)
def test_what_would_be_random_in_each_rendering_is_refused(
    chart: Chart, postgres: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValuesRefused, match=named):
        chart.render({"gitOps": True, "postgres": postgres})


def test_no_secret_is_rendered(applied: Rendered) -> None:
    assert applied.all("Secret") == []
