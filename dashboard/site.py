"""What all pages are made from, and the form that they have."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from fluxqueue.api.turns import CallerTurns
from fluxqueue.dashboard.access import NODES_RIGHT, Visible
from fluxqueue.dashboard.cluster import ClusterState
from fluxqueue.dashboard.day_costs import Costs
from fluxqueue.dashboard.loop_shares import LoopShares
from fluxqueue.dashboard.questions import Questions
from fluxqueue.dashboard.rendering import environment
from fluxqueue.dashboard.settings import DashboardSettings
from fluxqueue.dashboard.submissions import Trials
from fluxqueue.dashboard.viewers import Door, Viewer

__all__ = ["Asked", "Content", "NoSuchPage", "SharedRenders", "Site", "render"]

_MOST_KEPT: Final = 64
_READ_AT_ONCE: Final = 4
_LARGEST_KEPT: Final = 32_000_000
"""Characters of all that is kept."""
_MOMENT_S: Final = 10.0
"""Pages that show the present time are made again after this."""


class NoSuchPage(Exception):
    """There is no such thing, or the person does not see it: the two are not told apart."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: who, what he may see, and the parameters of the address."""

    viewer: Viewer
    visible: Visible
    parameters: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Content:
    """What a page shows: its title, the HTML of its middle, and the version that it was made of if that may
    be older than the cluster's.
    """

    title: str
    html: Markup
    version: int | None = None


class SharedRenders:
    """Content that is the same for all who see the same; made once for each change.

    Parameters
    ----------
    clock
        Seconds that only increase.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[int, float, Content]] = OrderedDict()
        self._size = 0
        self.made = 0

    def get(self, key: Hashable, version: int, make: Callable[[], Content]) -> Content:
        """Return the content of a key at a version."""
        now = self._clock()
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version and now - kept[1] < _MOMENT_S:
            return kept[2]
        content = make()
        self.made += 1
        if kept is not None:
            self._size -= len(kept[2].html)
        self._kept[key] = version, now, content
        self._kept.move_to_end(key)
        self._size += len(content.html)
        while len(self._kept) > 1 and (len(self._kept) > _MOST_KEPT or self._size > _LARGEST_KEPT):
            _, (_, _, oldest) = self._kept.popitem(last=False)
            self._size -= len(oldest.html)
        return content


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that pages are made from; ``stale`` returns true while changes in the cluster do not
    arrive. ``shares`` lets live pages be made, ``loads`` those that somebody loads. ``reading`` gives turns
    to read the objects of a job, which may be large.
    """

    settings: DashboardSettings
    state: ClusterState
    door: Door
    questions: Questions
    shared: SharedRenders = field(default_factory=SharedRenders)
    trials: Trials = field(default_factory=Trials)
    costs: Costs = field(default_factory=Costs)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    stale: Callable[[], bool] = lambda: False
    shares: LoopShares = field(default_factory=LoopShares)
    loads: LoopShares = field(default_factory=LoopShares)
    reading: CallerTurns = field(default_factory=lambda: CallerTurns(_READ_AT_ONCE, of_one=1))

    async def visible(self, viewer: Viewer, chosen: str = "") -> Visible:
        """Return what somebody may see who looks at one namespace, or at all."""
        return await self.door.visible(viewer, self.state.namespaces, chosen)

    async def hidden(self, viewer: Viewer) -> frozenset[str]:
        """Return the pages that have nothing for somebody, by the rights that they ask for."""
        needed = {"nodes": NODES_RIGHT, "doctor": self.questions.doctor_right}
        lacking = await asyncio.gather(
            *(self.door.access.lacks(viewer.person, right) for right in needed.values())
        )
        return frozenset(name for name, lacks in zip(needed, lacking, strict=True) if lacks)

    async def ask(self, viewer: Viewer, parameters: Mapping[str, str], path: Mapping[str, str]) -> Asked:
        """Return a question, with what may be seen."""
        chosen = path.get("namespace") or parameters.get("namespace", "").strip()
        return Asked(viewer, await self.visible(viewer, chosen), parameters, path)


def render(template: str, **values: Any) -> Markup:
    """Render a template."""
    return Markup(environment().get_template(template).render(**values))  # noqa: S704  # the environment escapes
