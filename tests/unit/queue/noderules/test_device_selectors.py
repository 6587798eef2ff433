"""CEL expressions about devices: what they select, and which are not evaluated."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from fluxqueue.api.devices import Device
from fluxqueue.queue.noderules import device_selectors
from fluxqueue.queue.noderules.device_selectors import InexactSelector, Selector, selector_of

DRIVER = "gpu.example.com"
OWN = f"device.attributes['{DRIVER}']"
MEMORY = f"device.capacity['{DRIVER}'].memory"


def device(**attributes: Any) -> Device:
    values = {
        "model": {"string": "A100-SXM"},
        "cores": {"int": 108},
        "mig": {"bool": False},
        "driverVersion": {"version": "1.10.3"},
    }
    more = {"resource.kubernetes.io/pcieRoot": {"string": "pci0"}}
    body = {
        "name": "gpu-0",
        "attributes": {**values, **more, **attributes},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    return msgspec.convert(body, Device)


def selector(text: str) -> Selector:
    found = selector_of(text)
    assert isinstance(found, Selector), found
    return found


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        (f"device.driver == '{DRIVER}'", True),
        ("device.driver == 'other'", False),
        (f"{OWN}.model == 'A100-SXM' && !{OWN}.mig", True),
        (f"{OWN}.model != 'A100-SXM' || {OWN}.mig", False),
        (f"{OWN}.model.lowerAscii().matches('^a100.*$')", True),
        (f"{OWN}.model.startsWith('H') ? true : {OWN}.cores > 100", True),
        (f"{OWN}.model in ['H100', 'H200']", False),
        (f"{MEMORY}.compareTo(quantity('40Gi')) >= 0", True),
        (f"{MEMORY}.isGreaterThan(quantity('40Gi'))", False),
        (f"{MEMORY} == quantity('40960Mi')", True),
        (f"{OWN}.driverVersion.isGreaterThan(semver('1.9.12'))", True),
        (f"{OWN}.driverVersion.compareTo(semver('1.10.3-rc.1')) > 0", True),
        (f"has({OWN}.model) && 'cores' in {OWN}", True),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0'", True),
        ("'other.example.com' in device.attributes", False),
        ("device.attributes['other.example.com'].model == 'A100-SXM'", False),
        (f"{OWN}.missing == 1", False),
        ("isSemver('1.2.3') && !isSemver('1.2') && isQuantity('3Gi') && !isQuantity('x')", True),
        ("1", False),
        ("'true'", False),
    ],
)
def test_an_expression_selects_what_kubernetes_selects(expression: str, selects: bool) -> None:
    assert selector(expression).selects(DRIVER, device()) is selects


@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2].all(x, x > 0)",
        f"{OWN}.map(key, key).exists(key, key == 'model')",
        f"cel.bind(own, {OWN}, own.mig)",
        f"{OWN}['mo' + 'del'] == 'A100-SXM'",
        "{'a': 1} == {}",
        f"{OWN}.?model.orValue('') == 'A100-SXM'",
        f"size({OWN}) > 0",
        "device.driver ==",
        f"device.driver == '{'x' * 1024}'",
        " && ".join(["true"] * 120),
    ],
)
def test_what_may_cost_much_or_cannot_be_read_is_not_evaluated(expression: str) -> None:
    found = selector_of(expression)
    assert isinstance(found, InexactSelector)
    assert str(found)


@pytest.mark.parametrize(
    "expression",
    ["(" * 500 + "true" + ")" * 500, "!" * 900 + "true", f"{OWN}.model.matches('(a{{1000}}){{1000}}')"],
)
def test_an_expression_that_fails_selects_nothing(expression: str) -> None:
    found = selector_of(expression)
    assert isinstance(found, InexactSelector) or not found.selects(DRIVER, device())


def test_devices_that_look_alike_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = selector(f"{OWN}.model == 'A100-SXM' && {OWN}.cores == 108")
    evaluated: list[str] = []
    evaluate = Selector._evaluate

    def counted(self: Selector, driver: str, seen: Device) -> bool:
        evaluated.append(seen.name)
        return evaluate(self, driver, seen)

    monkeypatch.setattr(Selector, "_evaluate", counted)
    for number in range(5):
        assert found.selects(DRIVER, device(uuid={"string": f"id-{number}"}))
    assert len(evaluated) == 1
    assert not found.selects(DRIVER, device(model={"string": "T4"}))
    assert len(evaluated) == 2


def test_a_name_that_is_written_in_code_points_is_not_overlooked() -> None:
    found = selector(f"{OWN}['\\u0075uid'] == 'id-1'")
    assert [found.selects(DRIVER, device(uuid={"string": f"id-{number}"})) for number in range(3)] == [
        False,
        True,
        False,
    ]


def test_beyond_a_number_of_different_devices_all_count_as_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_selectors, "_MOST_WORK", 1)
    monkeypatch.setattr(device_selectors, "_LEAST_LOOKS", 2)
    found = selector(f"{OWN}.cores < 2 && {OWN}.mig == false")
    assert [found.selects(DRIVER, device(cores={"int": cores})) for cores in (5, 6, 7)] == [
        False,
        False,
        True,
    ]


def test_without_the_library_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "celpy", None)
    assert "not installed" in str(selector_of("device.driver == 'without the library'"))
