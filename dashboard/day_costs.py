"""What work costs, where the queue has prices: asked of its history in the name of a person (`questions`), at
most once in some minutes for each session, because pages are made again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.cli.costs import cost_text, currency_of
from fluxqueue.cli.jobs import state_of
from fluxqueue.dashboard.questions import NoAnswer
from fluxqueue.dashboard.rendering import utc
from fluxqueue.dashboard.viewers import NoApi

if TYPE_CHECKING:
    from fluxqueue.dashboard.site import Asked, Site

__all__ = ["Costs"]

_KEPT_S: Final = 300.0
_MOST_KEPT: Final = 512
_PATIENCE_S: Final = 0.15
"""How long a page waits for the first answer; later ones have it."""


class Costs:
    """The costs that pages show, in words such as ``12.30 EUR``; empty where they are not known.

    Parameters
    ----------
    clock
        Seconds that only increase.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, ...], tuple[float, str]] = OrderedDict()
        self._asked: dict[tuple[str, ...], asyncio.Task[None]] = {}

    async def today(self, site: Site, asked: Asked) -> str:
        """Return what all work that a person sees cost since midnight (UTC)."""
        seen = asked.visible.namespaces
        if seen is not None and len(seen) != 1:
            return ""
        where = {"namespace": next(iter(seen))} if seen else {}
        day = site.clock().replace(hour=0, minute=0, second=0, microsecond=0)
        query = {**where, "since": utc(day), "by": "day"}
        return await self._known(site, asked, ("", *where.values()), "/report", query, _sum)

    async def of_job(self, site: Site, asked: Asked, job: FluxJob) -> str:
        """Return what a job has cost until now; asked again when its state is another one."""
        ref = job.spec.object_ref
        query = {"namespace": job.metadata.namespace, "name": ref.name, "kind": ref.kind, "limit": "20"}

        def of_uid(answer: Mapping[str, Any]) -> str:
            rows = (row for row in _rows(answer, "jobs") if row.get("uid") == ref.uid)
            return next((text for row in rows if (text := cost_text(row))), "")

        key = job.metadata.uid, state_of(job)
        return await self._known(site, asked, key, "/history", query, of_uid)

    async def _known(
        self,
        site: Site,
        asked: Asked,
        what: tuple[str, ...],
        path: str,
        query: Mapping[str, str],
        read: Callable[[Mapping[str, Any]], str],
    ) -> str:
        """Return what is known; a question that takes long is answered for the next page."""
        key = (asked.viewer.session.key, *what)
        kept = self._kept.get(key)
        if kept is None or kept[0] <= self._clock():
            if (task := self._asked.get(key)) is None:
                task = asyncio.create_task(self._ask(site, asked, key, path, query, read))
                self._asked[key] = task
                task.add_done_callback(lambda _: self._asked.pop(key, None))
            await asyncio.wait({task}, timeout=_PATIENCE_S)
            kept = self._kept.get(key)
        return kept[1] if kept is not None else ""

    async def _ask(
        self,
        site: Site,
        asked: Asked,
        key: tuple[str, ...],
        path: str,
        query: Mapping[str, str],
        read: Callable[[Mapping[str, Any]], str],
    ) -> None:
        text = ""
        try:
            api = site.door.api(asked.viewer)
            answer = await site.questions.history(api, asked.viewer.session.key, path, query)
            if (currency := currency_of(answer)) and (amount := read(answer)):
                text = f"{amount} {currency}"
        except (NoAnswer, NoApi):
            pass  # the page of the history says why
        self._kept[key] = self._clock() + _KEPT_S, text
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)


def _rows(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _sum(answer: Mapping[str, Any]) -> str:
    return f"{sum((Decimal(cost_text(row) or 0) for row in _rows(answer, 'rows')), Decimal()):.2f}"
