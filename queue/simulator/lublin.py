"""The workload model of Lublin and Feitelson: rigid jobs as observed on five supercomputers.

U. Lublin and D. G. Feitelson, *The workload on parallel supercomputers: modeling the characteristics of rigid
jobs*, Journal of Parallel and Distributed Computing 63 (2003) 1105-1122, here with its parameters for all
jobs together. A job is serial, or the logarithm of its size has a two-stage uniform distribution, often
rounded to a power of two. The logarithm of a runtime has one of two gamma distributions, and larger jobs more
often have the longer one. Times between submissions have a gamma distribution and follow the hours of the
day.
"""

from __future__ import annotations

import math

import numpy as np

from fluxqueue.queue.simulator.traces import Trace, TraceJob, numbered

__all__ = ["lublin_trace"]

_SERIAL = 0.244
_POWER_OF_TWO = 0.576
_SMALLEST_LOG2 = 0.8
_BELOW_MIDDLE = 0.86
_MIDDLE_BELOW_LARGEST_LOG2 = 2.5

_SHORT = (4.2, 0.94)
_LONG = (312.0, 0.03)
_SHORT_BY_NODE, _SHORT_OF_SERIAL = -0.0054, 0.78
_LONGEST_LN = 12.0

_BETWEEN = (10.2303 * 1.0225, 0.4871)
"""Shape and scale of the logarithm of the time between submissions.
The factor converts the shape from rush hour to all day."""
_BY_HOUR = (8.1737, 3.9631)
_DAY_BEGINS = 11
_SLOTS = 48
_SLOT_S = 1800
_LONGEST_PAUSE_LN = 13.0


def lublin_trace(jobs: int, nodes: int, seed: int) -> Trace:
    """Return a random trace.

    Parameters
    ----------
    jobs
        Number of jobs, at least 1.
    nodes
        Size of the machine. No job asks for more.
    seed
        The same seed gives the same trace.

    Raises
    ------
    ValueError
        ``jobs`` or ``nodes`` is below 1.
    """
    if jobs < 1 or nodes < 1:
        raise ValueError(f"a trace of {jobs} jobs on {nodes} nodes cannot be made: both must be at least 1")
    random = np.random.default_rng(seed)
    weights = _weights()
    made, clock, slot, points, carried = [], 0.0, 0, 0.0, 0.0
    for _ in range(jobs):
        size = _size(random, nodes)
        runtime_s = _runtime_s(random, size)
        made.append(TraceJob(0, round(clock), size, runtime_s, runtime_s))
        points += math.exp(_gamma_below(random, _BETWEEN, _LONGEST_PAUSE_LN)) / _SLOT_S
        passed = 0
        while points > weights[slot]:
            points -= weights[slot]
            slot = (slot + 1) % _SLOTS
            passed += 1
        into = points / weights[slot]
        clock += _SLOT_S * (passed + into - carried)
        carried = into
    return Trace(f"lublin, {jobs} jobs, seed {seed}", nodes, numbered(made))


def _size(random: np.random.Generator, nodes: int) -> int:
    kind = random.random()
    largest = math.log2(nodes)
    if kind <= _SERIAL or nodes == 1:
        return 1
    middle = max(_SMALLEST_LOG2, largest - _MIDDLE_BELOW_LARGEST_LOG2)
    low, high = (_SMALLEST_LOG2, middle) if random.random() <= _BELOW_MIDDLE else (middle, largest)
    log2 = random.uniform(min(low, high), max(low, high))
    if kind <= _SERIAL + _POWER_OF_TWO:
        log2 = math.floor(log2 + 0.5)
    return min(nodes, max(1, math.floor(2**log2 + 0.5)))


def _runtime_s(random: np.random.Generator, size: int) -> int:
    short = min(1.0, max(0.0, _SHORT_BY_NODE * size + _SHORT_OF_SERIAL))
    while True:
        ln = random.gamma(*(_SHORT if random.random() <= short else _LONG))
        if ln <= _LONGEST_LN:
            return max(1, int(math.exp(ln)))


def _gamma_below(random: np.random.Generator, shape_and_scale: tuple[float, float], most: float) -> float:
    while True:
        value = float(random.gamma(*shape_and_scale))
        if value <= most:
            return value


def _weights() -> list[float]:
    """Relative number of submissions in each half hour from midnight on; 1 is the average."""
    shape, scale = _BY_HOUR
    weights = [0.0] * _SLOTS
    for half_hour in range(_DAY_BEGINS, _DAY_BEGINS + _SLOTS):
        weights[(half_hour - 1) % _SLOTS] = _gamma_cdf((half_hour + 0.5) / scale, shape) - _gamma_cdf(
            (half_hour - 0.5) / scale, shape
        )
    mean = sum(weights) / _SLOTS
    return [weight / mean for weight in weights]


def _gamma_cdf(x: float, shape: float) -> float:
    """Regularised lower incomplete gamma function, by its power series (Abramowitz and Stegun 6.5.29)."""
    term = total = 1.0 / shape
    divisor = shape
    while term > total * 1e-12:
        divisor += 1.0
        term *= x / divisor
        total += term
    return min(1.0, total * math.exp(shape * math.log(x) - x - math.lgamma(shape)))
