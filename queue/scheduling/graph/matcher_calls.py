"""Calls of the matcher with several requests: how many go together, and what becomes of them if it fails.

A request on which the matcher fails does not keep others from their answers. The requests of its batch are
sent again one by one, and each one that fails then gets the answer of an invalid request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile

import structlog

from fluxqueue.fluxion.messages import CallContext, JobMatchRequest, MatchBatch, MatchResult, MatchVerdict
from fluxqueue.fluxion.rpc.failures import InternalError, InvalidCall
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.queue.metrics import OBJECT_FAILURES

__all__ = ["in_one_call", "match_together"]

log = structlog.get_logger()

_MOST_TEXT = 65_536
"""Bytes of requests in one call.
Long rules about nodes cost up to a tenth of a second for a thousand nodes, and a call has a deadline."""
_LONG_REQUEST = 4_096
_WEIGHT_OF_LONG = 4
"""A byte of a longer request counts as so many: most of it is rules, and each is compared with each node."""


def in_one_call(requests: Sequence[JobMatchRequest]) -> int:
    """Return how many of these requests go to the matcher together:
    at least one, and no more text than is read in a few seconds.
    """
    lengths = (len(request.jobspec) for request in requests)
    sizes = accumulate(length if length <= _LONG_REQUEST else length * _WEIGHT_OF_LONG for length in lengths)
    return max(sum(1 for _ in takewhile(lambda size: size <= _MOST_TEXT, sizes)), 1)


async def match_together(
    fluxion: Fluxion,
    requests: Sequence[JobMatchRequest],
    yielding: Sequence[int],
    call: CallContext,
    *,
    stop: bool,
) -> MatchBatch:
    """Match requests in one call; if that fails, one by one, so that one of them fails alone."""
    try:
        return await fluxion.match_batch(requests, call=call, stop_at_first_failure=stop, yielding=yielding)
    except (InternalError, InvalidCall) as error:
        log.warning("match.batch_failed", requests=len(requests), error=str(error))
    answers: list[MatchResult] = []
    displaced: set[int] = set()
    seconds: list[float] = []
    for request in requests:
        try:
            batch = await fluxion.match_batch([request], call=call, yielding=yielding)
        except (InternalError, InvalidCall) as error:
            OBJECT_FAILURES.labels("cycle").inc()
            reason = f"this request cannot be worked on, and the queue goes on without it: {error}"
            answers.append(MatchResult(MatchVerdict.INVALID, request.jobid, reason=reason))
            seconds.append(0.0)
        else:
            answers += batch.results
            displaced.update(batch.displaced)
            seconds.append(batch.overhead_s)
        if stop and answers[-1].verdict is not MatchVerdict.GRANTED:
            break
    return MatchBatch(tuple(answers), call.instance, sum(seconds), tuple(displaced), tuple(seconds))
