"""The scenarios, and one run of one of them for one contender."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import baseline, clogged
from cluster.contenders import make_contender
from cluster.loads import Load, backlog, burst, idle, singles, steady
from cluster.meters import pss_mib
from cluster.profiles import area_shares, profiled, read_traces
from cluster.sites import Site
from cluster.stage import Stage, staged

__all__ = ["SCENARIOS", "Outcome", "Scenario", "quantiles", "run_on", "run_scenario"]


_SITE = Site()
_LARGE = Site(nodes=50, node_cpu=32, node_memory_gib=64)
"""Room for 12,500 pods of the loads."""
_KUEUES = ("kueue", "kueue-1000", "kueue-tuned")


@dataclass(frozen=True)
class Scenario:
    """A load on a cluster.

    Attributes
    ----------
    load, site
        What is created on which cluster.
    rounds
        At most so many rounds, because one takes long.
    settles
        Costs are read when nothing is written any more, so that work which comes after the start counts.
    rests_s
        Without work before costs are read first, so that what follows the start of the programs does not
        count.
    without
        Contenders that are left out, because the scenario takes long and its claim does not need them.
    """

    load: Load
    site: Site = _SITE
    rounds: int | None = None
    settles: bool = True
    rests_s: float = 0.0
    without: tuple[str, ...] = ()


SCENARIOS: Mapping[str, Scenario] = {
    "idle": Scenario(idle(60), rounds=2, settles=False, rests_s=60, without=("kueue-tuned",)),
    "burst-300": Scenario(burst(300)),
    "burst-600": Scenario(burst(600)),
    "burst-2000": Scenario(burst(2_000)),
    "burst-10000": Scenario(burst(10_000), _LARGE, rounds=2, without=_KUEUES),
    "gangs-100x8": Scenario(burst(100, pods=8)),
    "gangs-20x100": Scenario(burst(20, pods=100), _LARGE, without=_KUEUES),
    "gangs-2x2000": Scenario(burst(2, pods=2_000), _LARGE, rounds=2, without=_KUEUES),
    "gangs-1x10000": Scenario(burst(1, pods=10_000), _LARGE, rounds=2, without=_KUEUES),
    "steady-10": Scenario(steady(10, 180), without=("kueue-tuned",)),
    "steady-20": Scenario(steady(20, 180), without=("kueue-tuned",)),
    "backlog-10000": Scenario(backlog(10_000, 10), rounds=2, without=("plain", "kueue")),
    "baseline-3000": Scenario(baseline.baseline(0.2), baseline.SITE, rounds=2),
    "baseline-15000": Scenario(baseline.baseline(1), baseline.SITE, rounds=2),
    "clogging": Scenario(clogged.clogged(100), clogged.SITE, rounds=2),
    "profile-600": Scenario(burst(600), Site(profiled=True), rounds=1),
    "check-burst": Scenario(burst(120)),
    "check-singles": Scenario(singles(40)),
}
"""All bursts and steady loads fit their cluster at once.
Those of `make bench-check` come last."""


@dataclass(frozen=True)
class Outcome:
    """One run of one scenario by one contender.

    Attributes
    ----------
    jobs
        The Jobs that the load created, by which costs are divided; 0 if it created none.
    lasted_s
        From the first reading of the counters to the last.
    figures, wait_quantiles_s
        See `LoadResult`; the waits as the 0th to the 100th percentile.
    cpu_s, pss_mib
        Of each program with its children.
    writes, events
        Successful writes of objects by kind, and of Events.
    others_cpu_s
        Of everything else on the machine except the client, in the same time.
    stolen_s
        What the host gave to other machines meanwhile.
    profile
        Shares of the areas of the API server's code, in profiled scenarios only.
    """

    scenario: str
    contender: str
    jobs: int
    lasted_s: float
    figures: Mapping[str, float]
    wait_quantiles_s: list[float]
    cpu_s: Mapping[str, float]
    writes: Mapping[str, int]
    events: int
    others_cpu_s: float
    stolen_s: float
    pss_mib: Mapping[str, float]
    profile: Mapping[str, float] = field(default_factory=dict)

    @property
    def stolen_share(self) -> float:
        """The share of a core that the host took away during the run."""
        return self.stolen_s / self.lasted_s

    def document(self) -> dict[str, Any]:
        """Return it as plain values, with four significant digits."""
        return {key: _rounded(value) for key, value in asdict(self).items()}


async def run_scenario(scenario: str, contender: str, *, scale: float = 1.0, profiles: Path) -> Outcome:
    """Run a scenario once, on a cluster of its own that is removed afterwards.

    Parameters
    ----------
    scenario
        A key of `SCENARIOS`.
    contender
        One of `CONTENDERS`.
    scale
        Factor of the number of Jobs, for short forms.
    profiles
        The folder of the API server's profiles, if the scenario takes some.
    """
    chosen = SCENARIOS[scenario]
    async with staged(make_contender(contender, chosen.site), chosen.site) as stage:
        if not chosen.site.profiled:
            return await run_on(stage, scenario, scale=scale)
        async with profiled(stage.api, profiles / f"{scenario}-{contender}") as files:
            outcome = await run_on(stage, scenario, scale=scale)
    return replace(outcome, profile=area_shares(await asyncio.to_thread(read_traces, files)))


async def run_on(stage: Stage, scenario: str, *, scale: float = 1.0) -> Outcome:
    """Run a scenario on a stage that has the scenario's site."""
    chosen = SCENARIOS[scenario]
    await asyncio.sleep(chosen.rests_s * scale)
    before = await stage.cost()
    result = await chosen.load(stage, scale)
    if chosen.settles:
        await stage.settled()
    used = (await stage.cost()).since(before)
    return Outcome(
        scenario=scenario,
        contender=stage.contender.name,
        jobs=result.jobs,
        lasted_s=used.at_s,
        figures=result.figures,
        wait_quantiles_s=quantiles(result.waits_s),
        cpu_s=used.cpu_s,
        writes=dict(used.writes.objects),
        events=used.writes.events,
        others_cpu_s=used.others_cpu_s,
        stolen_s=used.stolen_s,
        pss_mib=pss_mib(stage.contender.processes()),
    )


def quantiles(waits_s: Any) -> list[float]:
    """Return the 0th to the 100th percentile, each a wait that occurred; nothing if there are none."""
    ordered = sorted(waits_s)
    return (
        [ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] for percent in range(101)]
        if ordered
        else []
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
