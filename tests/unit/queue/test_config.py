"""The configuration file: levels of the topology, weights of resources, and what may wait."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from fluxqueue.queue.config import FairShareConfig, InvalidConfig, node_rules, read_config


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_zone_block_and_rack_are_the_levels_unless_others_are_named(tmp_path: Path) -> None:
    assert [name for name, _ in read_config(None).levels] == ["zone", "block", "rack"]
    assert [
        name for name, _ in read_config(written(tmp_path, 'blockLabel: ""\nrackLabel: example.com/r')).levels
    ] == ["zone", "rack"]
    levels = "topologyLevels: [{name: row, label: example.com/row}, {name: shelf, label: example.com/shelf}]"
    assert node_rules(read_config(written(tmp_path, levels))).levels == (
        ("row", "example.com/row"),
        ("shelf", "example.com/shelf"),
    )


def test_levels_that_cannot_be_are_refused_with_file_and_key(tmp_path: Path) -> None:
    path = written(tmp_path, "topologyLevels: [{name: node, label: x}]")
    with pytest.raises(
        InvalidConfig, match=r"config.yaml is invalid: topologyLevels: 'node' is no name of a level"
    ):
        read_config(path)


def test_what_may_wait_of_a_namespace_is_read_and_bounded_by_default(tmp_path: Path) -> None:
    default = read_config(None).waiting_per_namespace.budget
    assert (default.workloads, default.size) == (100_000, 64 * 2**20)
    read = read_config(
        written(tmp_path, "waitingPerNamespace: {workloads: 5, requestsMiB: 2}")
    ).waiting_per_namespace.budget
    assert (read.workloads, read.size, read.words) == (5, 2 * 2**20, "5 workloads and 2 MiB of requests")
    with pytest.raises(InvalidConfig, match=r"waitingPerNamespace"):
        read_config(written(tmp_path, "waitingPerNamespace: {workloads: 0}"))


def test_the_weights_of_resources_are_for_a_core_a_gib_and_a_piece(tmp_path: Path) -> None:
    assert FairShareConfig().weights == {"cpu": 0.001}
    text = "fairShare: {halfLifeSeconds: 3600, resourceWeights: {memory: 0.5, nvidia.com/gpu: 16}}"
    read = read_config(written(tmp_path, text)).fair_share
    assert (read.half_life_seconds, read.weights) == (3600, {"memory": 0.5 / 1024, "nvidia.com:gpu": 16})


@pytest.mark.parametrize("text", ["{halfLifeSeconds: 0}", "{resourceWeights: {cpu: -1}}", "{halfLife: 7d}"])
def test_a_fair_share_that_cannot_be_is_refused_with_file_and_key(tmp_path: Path, text: str) -> None:
    text = f"fairShare: {text}"
    with pytest.raises(InvalidConfig, match=r"config.yaml is invalid: .*fairShare"):
        read_config(written(tmp_path, text))


def test_prices_are_read_exactly(tmp_path: Path) -> None:
    text = (
        "prices: {currency: EUR, entries: ["
        "{matchLabels: {gpu: a100}, from: 2027-01-01, perHour: {nvidia.com/gpu: 2.1, cpu: 0.04}}]}"
    )
    prices = read_config(written(tmp_path, text)).prices
    (entry,) = prices.entries
    assert entry.per_hour == {"nvidia.com/gpu": Decimal("2.1"), "cpu": Decimal("0.04")}
    assert (entry.begins, entry.match_labels) == (datetime(2027, 1, 1, tzinfo=UTC), {"gpu": "a100"})
    assert (prices.shown_currency, read_config(None).prices.shown_currency) == ("EUR", "")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("{perHour: {cpu: -1}}", r"prices\.entries\[0\]\.perHour\.cpu: -1 is no price: write a number"),
        ("{perHour: {cpu: .nan}}", r"perHour\.cpu: NaN is no price"),
        ("{perHour: {gpu: 1}}", r"perHour: 'gpu' is no resource: name node, cpu"),
        ("{perHour: {cpu: 1}, labels: {}}", r"unknown field `labels`"),
        ("{matchLabels: {}}", r"missing required field `perHour`"),
    ],
)
def test_bad_prices_are_refused_with_file_and_key(tmp_path: Path, entry: str, sentence: str) -> None:
    text = f"prices: {{currency: EUR, entries: [{entry}]}}"
    with pytest.raises(InvalidConfig, match=rf"config.yaml is invalid: .*{sentence}"):
        read_config(written(tmp_path, text))


def test_nobody_is_asked_for_idle_work_by_default(tmp_path: Path) -> None:
    assert read_config(None).idle.prometheus.url == ""
    text = "idle: {prometheus: {url: 'http://prometheus:9090'}, query: gpu, below: 5, then: end}"
    read = read_config(written(tmp_path, text)).idle
    assert (read.query, read.below, read.then, read.for_seconds) == ("gpu", 5.0, "end", 3600)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{prometheus: {url: 'http://prometheus:9090'}, query: ' '}", r"idle\.query is empty"),
        ("{prometheus: {url: 'http://user:word@prometheus'}}", r"idle\.prometheus\.url"),
        ("{then: delete}", r"idle\.then"),
        ("{forSeconds: 0}", r"idle\.forSeconds"),
    ],
)
def test_rules_for_idle_work_that_cannot_be_are_refused(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"config.yaml is invalid: .*{named}"):
        read_config(written(tmp_path, f"idle: {text}"))
