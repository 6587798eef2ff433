"""Feature gates that tests set, for the version of Kubernetes that they run on (``FLUXQUEUE_KUBERNETES``):
a version knows only its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluxqueue.local.kubernetes_versions import chosen_minor

__all__ = ["EXAMPLE_VERSION", "NATIVE_FLAGS", "NATIVE_GATES", "NATIVE_VERSION", "OLDER_GATES"]

_MINOR = int(chosen_minor().partition(".")[2])

OLDER_GATES: Mapping[str, bool] = (
    {"MutableSchedulingDirectivesForSuspendedJobs": False, "MutablePodResourcesForSuspendedJobs": False}
    if _MINOR >= 35
    else {}
)
"""Jobs as before Kubernetes 1.36: the template of a Job that has run cannot change while the Job has a
startTime."""

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
