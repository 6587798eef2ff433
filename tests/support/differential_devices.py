"""Devices of random worlds: a driver and a class for each copy, slices of its nodes, and claims of the work.

A claim is made from a template for each pod, or all of them share it. No pod has two: the queue counts what
each asks for apart, also if they may get the same devices (docs/devices.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["DEVICE_PATHS", "devices_for"]

Json = dict[str, Any]
API_VERSION = "resource.k8s.io/v1"
_API = f"/apis/{API_VERSION}"
DEVICE_PATHS = {
    "DeviceClass": (API_VERSION, f"{_API}/deviceclasses"),
    "ResourceSlice": (API_VERSION, f"{_API}/resourceslices"),
    "ResourceClaimTemplate": (API_VERSION, f"{_API}/namespaces/{{}}/resourceclaimtemplates"),
    "ResourceClaim": (API_VERSION, f"{_API}/namespaces/{{}}/resourceclaims"),
}
"""API version, and path of the collection in a namespace."""


def devices_for(
    rng: random.Random, mark: str, namespace: str, nodes: Sequence[str], specs: Sequence[Json]
) -> Iterator[Json]:
    """Yield the documents of some devices, and have the pods of these specs claim them."""
    made = _Devices(rng, mark, namespace)
    yield made.document(
        "DeviceClass",
        made.name,
        {"selectors": [{"cel": {"expression": f"device.driver == '{made.driver}'"}}]},
    )
    for node in nodes:
        if rng.random() < 0.8:
            yield made.slice_of(node)
    name, spec = "devices", {"devices": made.claim()}
    shared = rng.random() < 0.4
    yield made.document(
        "ResourceClaim" if shared else "ResourceClaimTemplate",
        name,
        spec if shared else {"spec": spec},
        namespace,
    )
    for each in specs:
        each["resourceClaims"] = [
            {"name": name, "resourceClaimName" if shared else "resourceClaimTemplateName": name}
        ]


class _Devices:
    def __init__(self, rng: random.Random, mark: str, namespace: str) -> None:
        self._rng = rng
        self.name = f"class-{mark}"
        self.driver = f"d-{mark}.example.com"
        self._namespace = namespace
        self._shared = rng.random() < 0.3

    def document(self, kind: str, name: str, spec: Json, namespace: str = "") -> Json:
        meta = {"name": name, **({"namespace": namespace} if namespace else {})}
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec}

    def slice_of(self, node: str) -> Json:
        rng = self._rng
        devices = []
        for number in range(rng.choice((1, 2, 2, 3))):
            model = rng.choice(("small", "small", "large"))
            attributes = {"model": {"string": model}, "root": {"string": rng.choice("ab")}}
            device = {
                "name": f"gpu-{number}",
                "attributes": attributes,
                "capacity": {"memory": {"value": "80Gi"}},
            }
            devices.append(
                device | ({"allowMultipleAllocations": True} if self._shared and rng.random() < 0.7 else {})
            )
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        return self.document(
            "ResourceSlice",
            f"slice-{node}",
            {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices},
        )

    def claim(self) -> Json:
        rng = self._rng
        kind = rng.choice(("plain", "plain", "plain", "selected", "all", "first", "matched"))
        if self._shared:
            kind = rng.choice(("share", "share", "plain"))
        any_device: Json = {"deviceClassName": self.name}
        large = {
            **any_device,
            "selectors": [{"cel": {"expression": f"device.attributes['{self.driver}'].model == 'large'"}}],
        }
        match kind:
            case "selected":
                exactly = {**large, "count": 1}
            case "all":
                exactly = {**any_device, "allocationMode": "All"}
            case "share":
                exactly = {
                    **any_device,
                    "count": 1,
                    "capacity": {"requests": {"memory": rng.choice(("20Gi", "30Gi", "40Gi"))}},
                }
            case "first":
                first = [{"name": "large", **large, "count": 1}, {"name": "two", **any_device, "count": 2}]
                return {"requests": [{"name": "devices", "firstAvailable": first}]}
            case _:
                exactly = {**any_device, "count": rng.choice((1, 1, 2))}
        claim: Json = {"requests": [{"name": "devices", "exactly": exactly}]}
        if kind == "matched":
            claim["constraints"] = [{"matchAttribute": f"{self.driver}/root"}]
        return claim
