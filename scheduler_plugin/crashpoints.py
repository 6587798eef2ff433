"""Points in the scheduler at which a fault test may end its process (`fluxqueue.api.crashpoints`)."""

from __future__ import annotations

import enum

from fluxqueue.api.crashpoints import reach

__all__ = ["SchedulerCrashPoint", "reach"]


class SchedulerCrashPoint(enum.StrEnum):
    """The last step that was done; the next one was not."""

    CHECKED = "checked-before-bind"
    BOUND_ONE = "one-pod-bound-before-the-next"
    BOUND = "bound-before-event"
    REFUSED = "refused-before-condition"
    REPORTED = "condition-before-event"
    CLAIM_SELECTED = "claim-selected-before-bind"
