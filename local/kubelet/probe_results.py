"""What the results of a probe mean: thresholds, as the kubelet counts them."""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.local.kubelet.specs import Probe

__all__ = ["ProbeResults"]


@dataclass
class ProbeResults:
    """The results of one probe in a row.

    Attributes
    ----------
    value
        What holds: None before a threshold is reached for the first time.
    """

    probe: Probe
    value: bool | None = None
    _last: bool | None = None
    _count: int = 0

    def add(self, passed: bool) -> bool:
        """Count a result; return true if what holds has changed."""
        self._count = self._count + 1 if passed == self._last else 1
        self._last = passed
        threshold = self.probe.success_threshold if passed else self.probe.failure_threshold
        if self._count < threshold or self.value == passed:
            return False
        self.value = passed
        return True
