import pytest
from support.chart_rendering import Chart, Rendered

from fluxqueue.local.binaries import Tool, find_tool


@pytest.fixture(scope="session")
def chart() -> Chart:
    helm = find_tool(Tool.HELM)
    if helm is None:
        pytest.skip("helm is neither on PATH nor built: `make controlplane` builds it, as `make test` does")
    return Chart(helm)


@pytest.fixture(scope="session")
def default(chart: Chart) -> Rendered:
    return chart.render()
