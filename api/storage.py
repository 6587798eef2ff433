"""Volumes, claims and storage classes: the fields on which placement depends (see `fluxqueue.api.metadata`).

A pod uses a volume through a PersistentVolumeClaim. The PersistentVolume says from which nodes it can be
accessed, the StorageClass when and where volumes are provisioned, and the CSINode how many volumes of a
driver can be attached to a node.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.pods import PersistentVolumeClaimSpec

__all__ = [
    "BOUND_BY_CONTROLLER",
    "SELECTED_NODE",
    "CSIDriver",
    "CSINode",
    "CSINodeSpec",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeSpec",
    "StorageClass",
    "TopologyTerm",
    "VolumeStatus",
]

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which its volume is to be provisioned."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume: a controller chose its claim, and may choose another one."""
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumeStatus(PartialObject, frozen=True):
    """The status of a claim or a volume."""

    phase: str = ""


class PersistentVolumeClaim(PartialObject, frozen=True):
    """A PersistentVolumeClaim."""

    trimmed_annotations: ClassVar[tuple[str, ...]] = ("metadata",)
    most_bytes: ClassVar[int] = 131_072

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def bound(self) -> bool:
        """True if the claim is bound to a volume."""
        return self.status.phase == "Bound" and bool(self.spec.volume_name)

    @property
    def for_one_pod(self) -> bool:
        """True if only one pod in the cluster may use the claim."""
        return "ReadWriteOncePod" in (self.spec.access_modes or ())

    @property
    def selected_node(self) -> str:
        """The node for which its volume is being provisioned; empty if no node is selected."""
        return self.metadata.annotation(SELECTED_NODE) or ""


class VolumeNodeAffinity(PartialObject, frozen=True):
    """The nodes from which a volume can be accessed; ``required`` is a node selector in decoded JSON."""

    required: dict[str, Any] | None = None


class CSISource(PartialObject, frozen=True):
    """The CSI driver of a volume, and the driver's name for it."""

    driver: str = ""
    volume_handle: str = ""


class ClaimRef(PartialObject, frozen=True):
    """The claim of a volume. Without a uid the volume is reserved for any claim of that name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(PartialObject, frozen=True):
    """The spec of a PersistentVolume."""

    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    access_modes: list[str] | None = None
    capacity: dict[str, str | int | float] | None = None
    claim_ref: ClaimRef | None = None
    csi: CSISource | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolume(PartialObject, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumeStatus = VolumeStatus()

    def kept_for(self, claim: PersistentVolumeClaim) -> bool:
        """True if the volume is reserved for this claim."""
        reserved, meta = self.spec.claim_ref, claim.metadata
        if reserved is None or (reserved.namespace, reserved.name) != (meta.namespace, meta.name):
            return False
        return not reserved.uid or reserved.uid == meta.uid


class TopologyExpression(PartialObject, frozen=True):
    """A node label and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(PartialObject, frozen=True):
    """Requirements on the labels of a node; all must be met."""

    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(PartialObject, frozen=True):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None

    @property
    def waits(self) -> bool:
        """True if volumes are provisioned or bound only after a node is selected for the pod
        (WaitForFirstConsumer).
        """
        return self.volume_binding_mode == "WaitForFirstConsumer"

    @property
    def provisions(self) -> bool:
        """True if volumes are provisioned for claims; otherwise only existing volumes can be bound."""
        return self.provisioner != _NO_PROVISIONER

    @property
    def default(self) -> bool:
        """True if this is the class of claims that name none."""
        return self.metadata.annotation(_DEFAULT_CLASS) == "true"


class CSIAllocatable(PartialObject, frozen=True):
    """How many volumes of a driver can be attached; None is no limit."""

    count: int | None = None


class CSIDriver(PartialObject, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: CSIAllocatable | None = None


class CSINodeSpec(PartialObject, frozen=True):
    """The CSI drivers of a node."""

    drivers: list[CSIDriver] | None = None


class CSINode(PartialObject, frozen=True):
    """A storage.k8s.io/v1 CSINode. Its name is that of its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """Driver -> how many of its volumes can be attached, for drivers with a limit."""
        return {
            driver.name: max(driver.allocatable.count, 0)
            for driver in self.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
