"""`fluxqueue uninstall` knows every kind of object that the chart can make, and finds each by its labels."""

from __future__ import annotations

import pytest
from support.chart_rendering import NAMESPACE, RELEASE, Chart, Rendered

from fluxqueue.api import names
from fluxqueue.cli.uninstall.installation import Installation
from fluxqueue.cli.uninstall.removal import ADMISSION, OTHERS, POLICIES, PROGRAMS
from fluxqueue.kube import kinds

REMOVED = {kind.kind: kind for kind in (*ADMISSION, *POLICIES, *PROGRAMS, *OTHERS, kinds.CLAIMS)}
OTHERWISE = {"CustomResourceDefinition", "FluxQueue"}
"""Left, or deleted with --delete-crds."""


OF_THE_SITE = "clients"
"""A Secret that the chart mounts and nobody of ours makes."""


@pytest.fixture(scope="module", params=["selfManaged", "certManager"])
def whole(request: pytest.FixtureRequest, chart: Chart) -> Rendered:
    """Everything that the chart can make with one kind of certificates."""
    return chart.render(
        {
            "certificates": {"mode": request.param},
            "enforcement": {"mode": "deny"},
            "miniclusters": {"enabled": True, "namespaces": ["*"]},
            "scheduler": {"enabled": True, "extender": {"enabled": True, "clientCASecret": OF_THE_SITE}},
            "postgres": {"backup": {"enabled": True}},
            "rbac": {"metricsReadableBy": ["monitoring:prometheus"]},
            "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
            "monitoring": {
                name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "dashboard")
            },
        }
    )


def made(rendered: Rendered) -> list[tuple[str, str, dict[str, str], str]]:
    """Return kind, name, labels and namespace of each object, except of the pods of `helm test`."""
    metas = [(document["kind"], document["metadata"]) for document in rendered.objects]
    return [
        (kind, meta["name"], meta.get("labels", {}), meta.get("namespace", NAMESPACE))
        for kind, meta in metas
        if (meta.get("annotations") or {}).get("helm.sh/hook") != "test"
    ]


def test_every_kind_of_the_chart_is_removed(whole: Rendered) -> None:
    assert {kind for kind, *_ in made(whole)} <= REMOVED.keys() | OTHERWISE


def test_every_object_of_the_chart_is_found_by_its_labels(whole: Rendered) -> None:
    selector = dict(pair.split("=") for pair in Installation(NAMESPACE, RELEASE, RELEASE).selector.split(","))
    unlabelled = [
        (kind, name)
        for kind, name, labels, _ in made(whole)
        if kind not in OTHERWISE and not selector.items() <= labels.items()
    ]
    assert unlabelled == []


def test_every_object_is_in_the_namespace_of_the_release_or_in_none(whole: Rendered) -> None:
    assert {
        namespace for kind, _, _, namespace in made(whole) if kind in REMOVED and REMOVED[kind].namespaced
    } == {NAMESPACE}


def test_what_the_programs_create_has_the_names_that_uninstall_expects(whole: Rendered) -> None:
    installation = Installation(NAMESPACE, RELEASE, RELEASE)
    for program, lease in zip(("queue", "scheduler"), installation.leases, strict=True):
        arguments = whole.container(f"fluxqueue-{program}", program)["args"]
        assert arguments[arguments.index("--lease") + 1] == lease
    volumes = [volume for _, spec in whole.pod_specs() for volume in spec["volumes"] if "secret" in volume]
    mounted = {volume["secret"]["secretName"] for volume in volumes}
    rendered = {name for kind, name, *_ in made(whole) if kind == "Secret"}
    certificates = {document["spec"]["secretName"] for document in whole.all("Certificate")}
    assert mounted - rendered <= {*installation.certificates, *certificates, OF_THE_SITE}
    assert certificates <= {*installation.certificates}


def test_the_crds_are_those_that_uninstall_deletes(whole: Rendered) -> None:
    crds = {name for kind, name, *_ in made(whole) if kind == "CustomResourceDefinition"}
    assert crds == {
        f"{names.FLUXJOBS}.{names.GROUP}",
        f"{names.FLUXQUEUES}.{names.GROUP}",
        f"{names.FLUXACCOUNTS}.{names.GROUP}",
        f"{names.FLUXRESERVATIONS}.{names.GROUP}",
        f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}",
    }
