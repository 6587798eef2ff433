"""What can be decided about an object: let it pass, patch it, or refuse it with one sentence."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from fluxqueue.api import names
from fluxqueue.webhook.patches import Operation

__all__ = ["Decision", "Outcome", "Refusal", "Settings"]


class Outcome(enum.StrEnum):
    """What became of a review; the closed set of the metric's label ``outcome``."""

    PASSED = "passed"
    """Nothing to decide, or nothing wrong with an object of our own kinds."""
    EXEMPT = "exempt"
    """Somebody else's, by requester, namespace or its own fields."""
    HELD = "held"
    """A Job suspended (by us or by its user), or a pod gated."""
    PINNED = "pinned"
    """A pod bound to the node of its allocation."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object is not created: the HTTP reason, and a sentence that names object, field and remedy."""

    reason: Literal["Forbidden", "Invalid"]
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole answer.

    Attributes
    ----------
    operations
        JSON Patch, empty when the object is already as it should be.
    warnings
        Sentences that kubectl shows to whoever applied the object.
    """

    outcome: Outcome
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: Refusal | None = None

    @property
    def allowed(self) -> bool:
        """Whether the object may be created."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator decides: whose word is trusted, and where we never look.

    Attributes
    ----------
    job_controllers
        User names that may create pods carrying an allocation (architecture, section 5, trust).
    daemonset_controllers
        User names whose DaemonSet pods are left alone.
    exempt_namespaces
        Namespaces in which nothing is touched: the system's and the one fluxqueue itself runs in, so that the webhook can never stand
        in the way of its own pods.
    """

    job_controllers: frozenset[str] = field(default=frozenset(names.JOB_CONTROLLERS))
    daemonset_controllers: frozenset[str] = field(default=frozenset(names.DAEMONSET_CONTROLLERS))
    exempt_namespaces: frozenset[str] = field(default=frozenset(names.SYSTEM_NAMESPACES))
