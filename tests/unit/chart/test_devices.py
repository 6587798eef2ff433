"""The right to read devices and their claims exists where they are counted, and only there."""

from __future__ import annotations

import msgspec
import pytest
from support.chart_rendering import Chart

from fluxqueue.queue.config import QueueConfig


@pytest.mark.parametrize("counted", [False, True])
def test_devices_are_read_where_they_are_counted(chart: Chart, counted: bool) -> None:
    rendered = chart.render({} if counted else {"queue": {"config": {"devices": False}}})
    rules = [
        rule
        for rule in rendered.one("ClusterRole", "fluxqueue-queue")["rules"]
        if "resource.k8s.io" in rule["apiGroups"]
    ]
    config = msgspec.yaml.decode(
        rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"], type=QueueConfig
    )
    assert config.devices is counted
    assert [rule["verbs"] for rule in rules] == ([["list", "watch"]] if counted else [])
