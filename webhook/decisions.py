"""The possible decisions about an object: pass, patch, or refuse with one sentence."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from fluxqueue.api import names
from fluxqueue.api.topology import TopologyLevel
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.known_queues import KnownQueues
from fluxqueue.webhook.patches import Operation

__all__ = ["AdmissionOutcome", "AdmissionRefusal", "AdmissionSettings", "Decision"]


class AdmissionOutcome(enum.StrEnum):
    """The outcome of a review; the closed set of the metric's label ``outcome``."""

    PASSED = "passed"
    """There was nothing to decide, or an object of our own kinds is valid."""
    EXEMPT = "exempt"
    """The object is not managed by fluxqueue: by its requester, namespace or own fields."""
    HELD = "held"
    """A Job is suspended (by us or by its user), or a pod is gated."""
    PINNED = "pinned"
    """A pod is pinned to the node of its allocation."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AdmissionRefusal:
    """Why an object is not created: the HTTP reason, and a sentence that names object, field and remedy."""

    reason: Literal["Forbidden", "Invalid", "InternalError"]
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The complete response to a review.

    Attributes
    ----------
    operations
        JSON Patch; empty if the object needs no change.
    warnings
        Sentences that kubectl shows to the person who applied the object.
    """

    outcome: AdmissionOutcome
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: AdmissionRefusal | None = None

    @property
    def allowed(self) -> bool:
        """True if the object may be created."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """What the administrator configures: trusted identities and exempt namespaces.

    Attributes
    ----------
    job_controllers
        User names that may create pods carrying an allocation.
    daemonset_controllers
        User names whose DaemonSet pods are not changed.
    exempt_namespaces
        Namespaces in which nothing is changed: those of the system and the one of fluxqueue itself, so that
        the webhook can never block its own pods.
    choices
        Which scheduler binds which pod; None if no scheduler of ours is installed.
    queues
        Which FluxQueues exist.
    record_submitters
        Write on each object who created it.
    levels
        The levels of the topology, from the top down; empty if they are not known, and then no name of a
        level is judged.
    """

    job_controllers: frozenset[str] = field(default=frozenset(names.JOB_CONTROLLERS))
    daemonset_controllers: frozenset[str] = field(default=frozenset(names.DAEMONSET_CONTROLLERS))
    exempt_namespaces: frozenset[str] = field(default=frozenset(names.SYSTEM_NAMESPACES))
    choices: SchedulerChoices | None = None
    queues: KnownQueues = field(default_factory=KnownQueues, compare=False)
    record_submitters: bool = False
    levels: tuple[TopologyLevel, ...] = ()
