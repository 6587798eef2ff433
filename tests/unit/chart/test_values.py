"""What can be said in values, and what is refused with a sentence."""

from typing import Any

import pytest
from chart_rendering import CHART, Chart, ValuesRefused


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"webhok": {"port": 1}}, "webhok", id="misspelt"),
        pytest.param({"webhook": {"prot": 1}}, "prot", id="misspelt further down"),
        pytest.param({"webhook": {"timeoutSeconds": 10}}, "timeoutSeconds", id="a webhook that may hang the cluster"),
        pytest.param({"webhook": {"port": 0}}, "port", id="no port"),
        pytest.param({"webhook": {"port": "9443"}}, "port", id="a port as text"),
        pytest.param({"webhook": {"failurePolicy": "fail"}}, "failurePolicy", id="wrong case"),
        pytest.param({"webhook": {"clientUrl": "http://127.0.0.1:1"}}, "clientUrl", id="without TLS"),
        pytest.param({"webhook": {"jobControllers": []}}, "jobControllers", id="nobody could start a pod"),
        pytest.param({"webhook": {"jobControllers": ["x' || 'a' == 'a"]}}, "jobControllers", id="a quote that would end the expression"),
        pytest.param({"namespaces": "all"}, "namespaces", id="unknown selection"),
        pytest.param({"exemptNamespaces": ["Kube_System"]}, "exemptNamespaces", id="no namespace's name"),
        pytest.param({"certificates": {"mode": "none"}}, "mode", id="unknown certificates"),
        pytest.param({"queue": {"config": {"policy": "best"}}}, "policy", id="unknown match policy"),
        pytest.param({"queue": {"config": {"cpuVertexMillicores": 0}}}, "cpuVertexMillicores", id="vertices of nothing"),
        pytest.param({"queue": {"config": {"logLevel": "trace"}}}, "logLevel", id="unknown level"),
        pytest.param({"queue": {"replicas": -1}}, "replicas", id="fewer than none"),
        pytest.param({"fullnameOverride": "Flux Queue"}, "fullnameOverride", id="no object's name"),
        pytest.param({"postgres": {"enabled": False}}, "existingSecret", id="no database at all"),
        pytest.param({"database": {"existingSecret": {"name": "mine"}}}, "existingSecret", id="two databases"),
        pytest.param({"postgres": {"settings": {"max_connections; DROP": 1}}}, "DROP", id="no setting's name"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_name(chart: Chart, values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValuesRefused, match=named):
        chart.render(values)


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
def test_every_object_is_called_after_the_full_name(chart: Chart, release: str, values: dict[str, Any], prefix: str) -> None:
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


def test_every_value_is_described_beside_it() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    undescribed = []
    for above, line in zip(["", *lines], lines, strict=False):
        leaf = line.strip()
        if not leaf or leaf.startswith(("#", "-")) or (leaf.endswith(":") and not above.strip().startswith("#")):
            continue
        if not above.strip().startswith("#"):
            undescribed.append(leaf)
    free_form = {"requests", "limits", "max_connections", "shared_buffers", "policy"}
    assert {line.split(":")[0] for line in undescribed} <= free_form


def test_our_labels_are_put_on_everything(chart: Chart) -> None:
    rendered = chart.render({"commonLabels": {"team": "hpc"}, "certificates": {"mode": "certManager"}})
    assert all(found["metadata"]["labels"]["team"] == "hpc" for found in rendered.objects)
