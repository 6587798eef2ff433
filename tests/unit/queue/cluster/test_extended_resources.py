"""Which class of devices stands for which resource, and on which nodes."""

from __future__ import annotations

import msgspec
import pytest
from support.builders import make_node
from support.device_objects import a_class

from fluxqueue.api.devices import DeviceClass
from fluxqueue.api.nodes import Node
from fluxqueue.queue.cluster.extended_resources import (
    NO_EXTENDED_RESOURCES,
    ExtendedResources,
    classes_by_resource,
)

GPU, GPU_TYPE = "example.com/gpu", "example.com:gpu"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def device_class(name: str, extended: str = GPU, created: str = OLD) -> DeviceClass:
    return msgspec.convert(a_class(name, extended=extended, created=created), DeviceClass)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        pytest.param([device_class("a"), device_class("b", created=NEW)], "b", id="the newest"),
        pytest.param([device_class("a", created=NEW), device_class("b")], "a", id="the newest comes first"),
        pytest.param([device_class("b"), device_class("a")], "a", id="of one age the first by name"),
    ],
)
def test_one_class_stands_for_a_resource(classes: list[DeviceClass], expected: str) -> None:
    assert classes_by_resource(classes)[GPU] == expected


def test_each_class_stands_for_its_implicit_resource() -> None:
    implicit = "deviceclass.resource.kubernetes.io/a"
    assert classes_by_resource([device_class("a", extended="")]) == {implicit: "a"}


def test_devices_stand_for_a_resource_where_the_node_reports_none() -> None:
    nodes = {
        name: msgspec.convert(make_node(name).allocatable(cpu="1", **more).build(), Node)
        for name, more in {
            "plain": {},
            "plugin": {GPU: "2"},
            "broken": {GPU: "0"},
            "odd": {GPU: "many"},
        }.items()
    }
    resources = ExtendedResources(lambda: [device_class("gpu.example.com")], nodes.get)
    resources.refresh()
    kinds = [GPU_TYPE, "cpu", "other.example.com:gpu"]
    assert {name: resources.served(name, kinds) for name in (*nodes, "gone")} == {
        "plain": [GPU_TYPE],
        "plugin": [],
        "broken": [GPU_TYPE],
        "odd": [GPU_TYPE],
        "gone": [GPU_TYPE],
    }
    assert resources.class_of(GPU_TYPE) == "gpu.example.com"
    assert resources.class_of("cpu") == ""
    assert GPU in resources
    assert "cpu" not in resources


def test_a_look_at_a_jobspec_finds_what_it_may_request() -> None:
    resources = ExtendedResources(lambda: [device_class("gpu.example.com")], lambda _name: None)
    assert not resources.may_be_in(f'"{GPU_TYPE}"')
    resources.refresh()
    assert resources.may_be_in(f'{{"type":"{GPU_TYPE}"}}')
    assert resources.may_be_in('{"type":"deviceclass.resource.kubernetes.io:gpu.example.com"}')
    assert not resources.may_be_in('{"type":"cpu"}')
    assert not NO_EXTENDED_RESOURCES.may_be_in(f'"{GPU_TYPE}"')


def test_the_types_are_one_object_until_a_class_changes() -> None:
    classes = [device_class("a")]
    resources = ExtendedResources(lambda: classes, lambda _name: None)
    resources.refresh()
    before = resources.types
    resources.refresh()
    assert resources.types is before
    classes.append(device_class("b", extended="example.com/fpga"))
    resources.refresh()
    assert "example.com:fpga" in resources.types
