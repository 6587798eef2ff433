from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from reference_metrics import Metric, metrics_in, metrics_page

import fluxqueue.queue.metrics

HEAD = "from prometheus_client import Counter, Gauge, Histogram\n"


def test_metrics_are_read_as_prometheus_names_them() -> None:
    source = HEAD + (
        'A = Counter("a_calls", "Calls.", ["verb"])\n'
        'B = Gauge("b", "Now", labelnames=("x",), registry=R)\n'
        'C = Counter("c_total", "C")\n'
    )
    assert list(metrics_in(source)) == [
        Metric("a_calls_total", "counter", ("verb",), "Calls"),
        Metric("b", "gauge", ("x",), "Now"),
        Metric("c_total", "counter", (), "C"),
    ]


def test_counters_of_other_libraries_are_none() -> None:
    assert list(metrics_in('from collections import Counter\nA = Counter("a", "b")\n')) == []


def test_a_name_that_is_no_literal_is_refused() -> None:
    with pytest.raises((SystemExit, ValueError)):
        list(metrics_in(HEAD + 'A = Gauge(name, "b")\n'))


def test_every_metric_of_the_queue_is_on_the_page() -> None:
    assert fluxqueue.queue.metrics.CYCLES is not None
    page = metrics_page()
    served = {family.name for family in REGISTRY.collect() if family.name.startswith("fluxqueue_")}
    assert [name for name in served if f"`{name}`" not in page and f"`{name}_total`" not in page] == []
    assert [
        title for title in ("## queue", "## webhook", "## fluxion", "## scheduler") if title not in page
    ] == []
