"""A foreign matcher: where the queue finds it, and what runs beside the queue."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from support.chart_rendering import Chart, Rendered, ValuesRefused, flag

from fluxqueue.queue.config import Matcher, QueueConfig

FOREIGN: dict[str, Any] = {"config": {"matcher": "foreign"}}


def queue_config(rendered: Rendered) -> QueueConfig:
    return msgspec.yaml.decode(
        rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"], type=QueueConfig
    )


def containers(rendered: Rendered) -> list[str]:
    return [container["name"] for container in dict(rendered.pod_specs())["fluxqueue-queue"]["containers"]]


def test_a_service_elsewhere_is_named_and_nothing_runs_beside_the_queue(chart: Chart) -> None:
    rendered = chart.render({"queue": FOREIGN, "fluxion": {"foreign": {"address": "fluxion.hpc:4242"}}})
    assert containers(rendered) == ["queue"]
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--fluxion") == ["fluxion.hpc:4242"]
    assert queue_config(rendered).matcher is Matcher.FOREIGN


def test_an_image_runs_beside_the_queue_with_what_the_values_say(chart: Chart) -> None:
    image = {"repository": "example.org/fluxion"}
    rendered = chart.render(
        {"queue": FOREIGN, "fluxion": {"foreign": {"image": image, "args": ["--port", "4242"]}}}
    )
    container = rendered.container("fluxqueue-queue", "fluxion")
    assert (container["image"], container["args"]) == ("example.org/fluxion:latest", ["--port", "4242"])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--fluxion") == ["127.0.0.1:4242"]


def test_the_default_is_our_own(chart: Chart) -> None:
    rendered = chart.render()
    assert queue_config(rendered).matcher is Matcher.OWN
    assert (
        yaml.safe_load(rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"])["matcher"] == "own"
    )


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"queue": FOREIGN}, "set fluxion.foreign.address"),
        ({"fluxion": {"foreign": {"address": "fluxion:4242"}}}, "set it to foreign"),
        (
            {"queue": FOREIGN, "fluxion": {"foreign": {"address": "http://fluxion"}}},
            "fluxion/foreign/address",
        ),
        ({"queue": {"config": {"matcher": "go"}}}, "matcher"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(
    chart: Chart, values: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ValuesRefused) as refused:
        chart.render(values)
    assert remedy in str(refused.value)
