"""Objects of ``resource.k8s.io/v1`` for tests: the devices that a driver publishes, and claims for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.builders import JobBuilder, Json

__all__ = [
    "API_VERSION",
    "CLASS",
    "DRIVER",
    "a_claim",
    "a_class",
    "a_slice",
    "a_template",
    "claiming",
    "request",
    "resource_claims",
]

API_VERSION = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"
ATTRIBUTES = f"device.attributes['{DRIVER}']"


def _object(kind: str, name: str, spec: Json, namespace: str = "", version: int = 1) -> Json:
    meta = {"name": name, "uid": f"{kind}-{namespace}-{name}", "resourceVersion": str(version)}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {**meta, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def a_slice(
    node: str,
    models: Sequence[str] | Mapping[str, str],
    *,
    driver: str = DRIVER,
    version: int = 1,
    pool: Mapping[str, Any] | None = None,
) -> Json:
    """Return the only slice of a node: a device of each model, or devices by name;
    without a node, devices that every node reaches.
    """
    named = (
        models
        if isinstance(models, Mapping)
        else {f"gpu-{number}": model for number, model in enumerate(models)}
    )
    devices = [
        {
            "name": name,
            "attributes": {
                "model": {"string": model},
                "uuid": {"string": f"{node}-{name}"},
                "driverVersion": {"version": "1.10.0"},
            },
            "capacity": {"memory": {"value": "80Gi" if model == "large" else "16Gi"}},
        }
        for name, model in named.items()
    ]
    where = {"nodeName": node} if node else {"allNodes": True}
    pool = {"name": node or "shared", "generation": 1, "resourceSliceCount": 1, **(pool or {})}
    name = f"{node or 'shared'}-{driver}-{pool['generation']}"
    return _object(
        "ResourceSlice", name, {"driver": driver, "pool": pool, **where, "devices": devices}, version=version
    )


def a_class(
    name: str = CLASS, *expressions: str, version: int = 1, extended: str = "", created: str = ""
) -> Json:
    """Return a class; without expressions, of all devices of the driver.
    ``extended`` is the resource that it stands for.
    """
    texts = expressions or (f"device.driver == '{DRIVER}'",)
    resource = {"extendedResourceName": extended} if extended else {}
    body = _object(
        "DeviceClass",
        name,
        {"selectors": [{"cel": {"expression": text}} for text in texts], **resource},
        version=version,
    )
    if created:
        body["metadata"]["creationTimestamp"] = created
    return body


def request(count: int = 1, *expressions: str, device_class: str = CLASS, **more: Any) -> Json:
    """Return a request of a claim."""
    exactly = {
        "deviceClassName": device_class,
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in expressions],
        **more,
    }
    return {"name": "devices", "exactly": exactly}


def a_template(name: str, *requests: Json, namespace: str = "", version: int = 1, **devices: Any) -> Json:
    """Return a template of claims."""
    spec = {"spec": {"devices": {"requests": _numbered(requests), **devices}}}
    return _object("ResourceClaimTemplate", name, spec, namespace, version)


def a_claim(
    name: str,
    *requests: Json,
    namespace: str = "",
    version: int = 1,
    has: Sequence[tuple[str, str]] = (),
    pod: str = "",
    **devices: Any,
) -> Json:
    """Return a claim; ``has`` are pool and name of the devices that it is allocated,
    ``pod`` the uid of the pod that it is reserved for.
    """
    body = _object(
        "ResourceClaim", name, {"devices": {"requests": _numbered(requests), **devices}}, namespace, version
    )
    if has:
        results = [
            {"request": "devices-0", "driver": DRIVER, "pool": pool, "device": device} for pool, device in has
        ]
        fields = [{"key": "metadata.name", "operator": "In", "values": [has[0][0]]}]
        selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
        body["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
        if pod:
            body["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": pod}]
    return body


def _numbered(requests: Sequence[Json]) -> list[Json]:
    return [{**each, "name": f"devices-{number}"} for number, each in enumerate(requests or (request(),))]


def resource_claims(template: str = "", claim: str = "") -> list[Json]:
    """Return ``spec.resourceClaims`` of a pod."""
    return [
        {
            "name": "devices",
            **({"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}),
        }
    ]


def claiming(builder: JobBuilder, template: str = "", claim: str = "") -> JobBuilder:
    """Return a Job whose pods use a claim."""
    return builder.with_("spec.template.spec.resourceClaims", resource_claims(template, claim))
