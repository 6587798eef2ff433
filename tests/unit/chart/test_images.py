"""The images of the chart."""

from support.chart_rendering import Rendered


def test_the_chart_runs_the_images_as_their_own_user(default: Rendered) -> None:
    specs = dict(default.pod_specs())
    assert [
        specs[f"fluxqueue-{image}"]["securityContext"]["runAsUser"] for image in ("webhook", "queue")
    ] == [65532, 65532]
