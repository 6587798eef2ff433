"""Whether an ended container runs again, and when, by the rules of the kubelet.

The delay begins at 10 s, doubles up to 300 s, and begins again after a container has run for 10 min
(Kubernetes: "Pod lifecycle", section "How Pods handle problems with containers"; ``MaxContainerBackOff`` and
``backOffPeriod`` of pkg/kubelet).
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.local.kubelet.specs import Container

__all__ = ["CrashBackoff", "restarts_after"]

FIRST_S = 10.0
LONGEST_S = 300.0
RESET_AFTER_S = 600.0


def restarts_after(container: Container, pod_policy: str, exit_code: int) -> bool:
    """True if the container runs again: its own rules decide first, then its own policy,
    then that of the pod.
    """
    for rule in container.restart_policy_rules or ():
        codes = rule.exit_codes
        if codes is None or rule.action != "Restart":
            continue
        listed = exit_code in (codes.values or ())
        if listed if codes.operator == "In" else not listed:
            return True
    policy = container.restart_policy or pod_policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


@dataclass
class CrashBackoff:
    """The delays before the starts of one container."""

    _next_s: float = 0.0

    def delay_s(self, ran_s: float) -> float:
        """Return how long the next start waits after a run of ``ran_s``."""
        if ran_s >= RESET_AFTER_S:
            self._next_s = 0.0
        delay = self._next_s
        self._next_s = min(max(FIRST_S, 2 * delay), LONGEST_S)
        return delay
