"""A request of a batch as it was read, also on the nodes of each of its flavors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fluxqueue.fluxion.match.jobspec import Jobspec
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.messages import JobMatchRequest

__all__ = ["Asked"]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request, and with what it is matched."""

    request: JobMatchRequest
    jobspec: Jobspec
    duration_s: int
    matcher: Matcher
    with_allocation: bool

    def in_flavors(self) -> Iterator[Asked]:
        """Yield the same request on the nodes of each of its flavors, in order, not before it may use them;
        itself if it has none.
        """
        if not self.jobspec.flavors:
            yield self
            return
        request = self.request
        for flavor, jobspec in zip(self.jobspec.flavors, self.jobspec.of_flavors, strict=True):
            not_before = max(request.not_before, flavor.opens_at(request.waits_since))
            yield replace(self, jobspec=jobspec, request=replace(request, not_before=not_before))

    def in_open_flavors(self, now: int) -> list[Asked]:
        """Return those of them that may start now."""
        return [each for each in self.in_flavors() if each.request.not_before <= now]

    def key(self, now: int) -> tuple[object, ...]:
        """Return what a refusal of a jobspec depends on, beside the jobspec and the length of its window."""
        request, flavors = self.request, self.jobspec.flavors
        closed = sum(each.opens_at(request.waits_since) > now for each in flavors)
        since = request.waits_since if closed and (request.reserve or request.min_slots) else 0
        options = request.exclude, request.reserve, request.explain, request.min_slots, request.not_before
        return self.matcher.policy.name, *options, closed, since
