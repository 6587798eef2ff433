"""MiniClusters for tests, as the controller reads them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.miniclusters import MiniCluster, MiniClusterSpec
from fluxqueue.certs.curve import Certificate, make
from fluxqueue.minicluster.broker import Share

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
IMAGE = "fluxqueue-queue:test"
UID = "6d4f1d2e-0000-4000-8000-000000000001"

Json = dict[str, Any]


def minicluster(
    name: str = "lammps", *, namespace: str = "default", uid: str = UID, **spec: Any
) -> MiniCluster:
    """Make a MiniCluster of this spec, with one container that runs ``hostname`` unless the spec has
    others.
    """
    spec.setdefault("size", 4)
    spec.setdefault("containers", [{"image": "app:1", "command": "hostname"}])
    return MiniCluster(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        spec=msgspec.convert(spec, MiniClusterSpec),
    )


def certificate(name: str = "lammps") -> Certificate:
    """Make a certificate."""
    return make(name, NOW)


def shares(size: int, cores: int = 2, gpus: int = 0) -> list[Share]:
    """Return the same share for every broker."""
    return [Share(cores, gpus)] * size


def kinds(objects: list[Json]) -> list[tuple[str, str]]:
    """Return kind and name of each object."""
    return [(each["kind"], each["metadata"]["name"]) for each in objects]


def one(objects: list[Json], kind: str, name: str | None = None) -> Json:
    """Return the only object of this kind (and name)."""
    matching = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    assert len(matching) == 1, f"{len(matching)} objects of kind {kind} and name {name}"
    return matching[0]
