import pytest
from chart_rendering import Chart, Rendered

from fluxqueue.local.binaries import Tool, find_binaries


@pytest.fixture(scope="session")
def chart() -> Chart:
    return Chart(find_binaries()[Tool.HELM])


@pytest.fixture(scope="session")
def default(chart: Chart) -> Rendered:
    return chart.render()
