"""Feature gates that tests set, for the version of Kubernetes that they run on (``FLUXQUEUE_KUBERNETES``):
a version knows only its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluxqueue.local.kubernetes_versions import chosen_minor

__all__ = [
    "DEVICE_FLAGS",
    "DEVICE_GATES",
    "DEVICE_PARTS",
    "EXAMPLE_VERSION",
    "JOBS_CHANGE_RESOURCES",
    "JOBS_STATE_SCHEDULING",
    "NATIVE_FLAGS",
    "NATIVE_GATES",
    "NATIVE_VERSION",
    "OLDER_GATES",
    "WORKLOAD_FLAGS",
    "WORKLOAD_GATES",
]

_MINOR = int(chosen_minor().partition(".")[2])

OLDER_GATES: Mapping[str, bool] = (
    {"MutableSchedulingDirectivesForSuspendedJobs": False, "MutablePodResourcesForSuspendedJobs": False}
    if _MINOR >= 35
    else {}
)
"""Jobs as before Kubernetes 1.36: the template of a Job that has run cannot change while the Job has a
startTime."""

JOBS_CHANGE_RESOURCES = _MINOR > 35
"""Whether the requests of a suspended Job can be changed."""

DEVICE_PARTS = _MINOR > 35
"""Whether taints, parts and shares of devices, and resources that a class of devices stands for, are on by
default, and taints can be written as rules by a gate."""

DEVICE_GATES: Mapping[str, bool] = {"DRADeviceTaintRules": True} if DEVICE_PARTS else {}
DEVICE_FLAGS = ["--runtime-config=resource.k8s.io/v1beta2=true"] if DEVICE_PARTS else []

NATIVE_VERSION = {36: "v1alpha2", 37: "v1beta1"}.get(_MINOR)
"""The version of PodGroups in ``scheduling.k8s.io``; None where there is none."""

EXAMPLE_VERSION = "v1alpha2"
"""That of the example."""

NATIVE_GATES: Mapping[str, bool] = (
    {}
    if NATIVE_VERSION is None
    else {"GenericWorkload": True, "GangScheduling": True}
    if _MINOR == 36
    else {"GenericWorkload": True}
)
NATIVE_FLAGS = (
    [f"--runtime-config=scheduling.k8s.io/{NATIVE_VERSION}=true"] if NATIVE_VERSION is not None else []
)

WORKLOAD_GATES: Mapping[str, bool] = dict.fromkeys(
    (
        *NATIVE_GATES,
        "TopologyAwareWorkloadScheduling",
        "WorkloadWithJob",
        "DRAWorkloadResourceClaims",
        # in 1.37 workload-aware preemption is part of GenericWorkload
        "WorkloadAwarePreemption" if _MINOR == 36 else "CompositePodGroup",
    )
    if NATIVE_VERSION is not None
    else (),
    True,
)
"""All of the Workload API."""

WORKLOAD_FLAGS = [f"{flag},scheduling.k8s.io/v1alpha3=true" if _MINOR > 36 else flag for flag in NATIVE_FLAGS]
"""In 1.37 v1alpha3 has the CompositePodGroups."""

JOBS_STATE_SCHEDULING = _MINOR > 36
"""Whether Jobs have ``spec.scheduling``."""
