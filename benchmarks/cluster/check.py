"""The short form that guards the costs: ``python -m cluster.check`` in the folder ``benchmarks``, or
`make bench-check`. Two minutes.

Plain Kubernetes and fluxqueue run in turn (A B B A), each on a cluster of its own: 40 Jobs one after the
other, then a burst of 120. The costs that are the same on every machine are compared with ``limits.json``:

* the writes per Job of each kind and the Events, for the Jobs one after the other. They do not depend on
  time, so there is hardly a margin.
* CPU time per Job, of the least of two rounds, beside plain Kubernetes in the same run. The programs that
  fluxqueue adds are compared with the API server of plain Kubernetes, since plain Kubernetes has none of
  them.

A cost above its limit is measured again, up to twice, and the least of all rounds counts: a busy neighbour
makes CPU time dearer, and never cheaper. What really costs more stays above its limit.

The margins of CPU time are from two runs of the same code on two cores with a load average of 7 to 9. They
differed by up to 14 % for the API server, 19 % for all programs and 25 % for those of fluxqueue, which have
more cycles when a burst lasts longer.

Rates and waits are not compared: on a shared machine they vary by more than what a change costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from cluster.contenders import make_contender
from cluster.scenarios import SCENARIOS, run_on
from cluster.stage import staged
from cluster.summary import FLUXQUEUE, PLAIN, figures_of

__all__ = ["Limits", "breaches", "measured_limits"]

_LIMITS = Path(__file__).with_name("limits.json")
_SINGLES, _BURST = "check-singles", "check-burst"
_ORDER = (PLAIN, FLUXQUEUE, FLUXQUEUE, PLAIN)
_WRITES_MARGIN = 0.25
_ATTEMPTS = 3


@dataclass(frozen=True)
class Ratio:
    """A figure of fluxqueue beside one of plain Kubernetes, and how often the recorded ratio may be
    exceeded.
    """

    ours: str
    theirs: str
    margin: float


_SERVER = "cpu_ms kube-apiserver"
_RATIOS = {
    "CPU of a Job, all programs": Ratio("cpu_ms", "cpu_ms", 1.3),
    "CPU of a Job, API server": Ratio(_SERVER, _SERVER, 1.3),
    "CPU of a Job, fluxqueue's programs beside the API server": Ratio("cpu_ms added", _SERVER, 1.5),
}


@dataclass(frozen=True)
class Limits:
    """What a Job may cost.

    Attributes
    ----------
    writes
        Writes per Job by kind, for Jobs one after the other; ``Events`` is one of the kinds.
    ratios
        CPU time per Job beside plain Kubernetes, by load and by what is compared.
    """

    writes: Mapping[str, float]
    ratios: Mapping[str, Mapping[str, float]]


def measured_limits(outcomes: Sequence[Mapping[str, Any]]) -> Limits:
    """Return what the runs cost."""
    ours = [each for each in outcomes if each["contender"] == FLUXQUEUE and each["scenario"] == _SINGLES]
    kinds = sorted({kind for each in ours for kind in each["writes"]})
    writes = {kind: min(each["writes"].get(kind, 0) / each["jobs"] for each in ours) for kind in kinds}
    writes["Events"] = min(each["events"] / each["jobs"] for each in ours)
    return Limits(
        writes,
        {
            load: {what: _measured(outcomes, load, ratio) for what, ratio in _RATIOS.items()}
            for load in (_SINGLES, _BURST)
        },
    )


def breaches(measured: Limits, limits: Limits) -> Iterator[str]:
    """Yield a sentence for each cost that is above its limit."""
    for kind, count in measured.writes.items():
        if count > (limit := limits.writes.get(kind, 0.0)) + _WRITES_MARGIN:
            yield (
                f"{count:.2f} writes per Job are {kind}: at most {limit:g} and {_WRITES_MARGIN:g} are "
                "expected"
            )
    for load, ratios in measured.ratios.items():
        for what, ratio in ratios.items():
            margin = _RATIOS[what].margin
            if ratio > (limit := limits.ratios[load][what]) * margin:
                yield (
                    f"{load}: {what}, is {ratio:.2f} times that of plain Kubernetes: "
                    f"at most {limit:g} times {margin:g} is expected"
                )


def main() -> int:
    """Measure and compare; 1 if something costs more than its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write what is measured as the new limits")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of Jobs (default: 1)")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    outcomes: list[dict[str, Any]] = []
    for _ in range(_ATTEMPTS):
        outcomes += [
            outcome for contender in _ORDER for outcome in asyncio.run(_costs(contender, arguments.scale))
        ]
        measured = measured_limits(outcomes)
        found = (
            [] if arguments.record else list(breaches(measured, Limits(**json.loads(_LIMITS.read_text()))))
        )
        if not found:
            break
    print(_table(measured))
    if arguments.record:
        rounded = {
            "writes": _rounded(measured.writes),
            "ratios": {load: _rounded(ratios) for load, ratios in measured.ratios.items()},
        }
        _LIMITS.write_text(json.dumps(rounded, indent=2) + "\n")
        return 0
    for sentence in found:
        print(sentence, file=sys.stderr)
    if found:
        print(
            f"Make it cheaper, or record the new costs in {_LIMITS.name} with --record and say why.",
            file=sys.stderr,
        )
    return 1 if found else 0


async def _costs(contender: str, scale: float) -> list[dict[str, Any]]:
    site = SCENARIOS[_SINGLES].site
    async with staged(make_contender(contender, site), site) as stage:
        return [(await run_on(stage, scenario, scale=scale)).document() for scenario in (_SINGLES, _BURST)]


def _measured(outcomes: Sequence[Mapping[str, Any]], load: str, ratio: Ratio) -> float:
    def least(contender: str, name: str) -> float:
        return min(
            figures_of(each)[name]
            for each in outcomes
            if (each["contender"], each["scenario"]) == (contender, load)
        )

    return least(FLUXQUEUE, ratio.ours) / least(PLAIN, ratio.theirs)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


def _table(measured: Limits) -> str:
    lines = [f"{count:8.2f}  {kind}, writes per Job" for kind, count in measured.writes.items()]
    lines += [
        f"{ratio:8.2f}  {what}, {load}"
        for load, ratios in measured.ratios.items()
        for what, ratio in ratios.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
