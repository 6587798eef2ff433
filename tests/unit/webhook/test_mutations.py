"""Thousands of damaged reviews: each is answered, or refused with one sentence. `make test-fuzz` sends a
hundred thousand.

``FLUXQUEUE_FUZZ_REVIEWS`` is their number and ``FLUXQUEUE_FUZZ_SEED`` begins the same ones again. The long
form prints the longest time.
"""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import json
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.builders import JOB_CONTROLLER, make_job, make_minicluster, make_pod, make_queue, make_review
from support.review_mutations import mutated_reviews

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.serving.readiness import Readiness
from fluxqueue.webhook.app import create_app
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.decide import AdmissionSettings
from fluxqueue.webhook.metrics import WebhookMetrics

REVIEWS = int(os.environ.get("FLUXQUEUE_FUZZ_REVIEWS", "3000"))
SEED = int(os.environ.get("FLUXQUEUE_FUZZ_SEED", "17"))
MOST_GROWTH_MIB = 32
ORIGINALS = [
    make_review(
        make_job("lammps").label("fluxqueue/queue", "long").annotation("fluxqueue/duration", "2h")
    ).build(),
    make_review(make_pod("p").label("app", "x").annotation("fluxqueue/gang-size", "3")).build(),
    make_review(
        make_pod("j-7-x").owned_by("Job").index(7).allocation("n[1-9],m3"), user=JOB_CONTROLLER
    ).build(),
    make_review(make_queue("night", nodeSelector={"rack": "7"})).build(),
    make_review(make_minicluster("flux")).build(),
]


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Refusals are not printed."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def test_every_damaged_review_is_answered_or_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = WebhookMetrics()
    settings = AdmissionSettings(choices=SchedulerChoices(SchedulerName.FLUXION))
    app = create_app(settings, Readiness(), metrics, lambda: dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    statuses: Counter[int] = Counter()
    longest = (0.0, b"")
    warm = 0.0

    async def ask(path: str, body: bytes) -> tuple[int, bytes]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
        }
        await app({**scope, "root_path": ""}, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)

    for number, body in enumerate(itertools.islice(mutated_reviews(ORIGINALS, SEED), REVIEWS)):
        begun = time.process_time()
        status, answer = await ask("/validate" if number % 3 == 0 else "/mutate", body)
        longest = max(longest, (time.process_time() - begun, body))
        statuses[status] += 1
        assert status in (200, 400), body
        if status == 200:
            response = json.loads(answer)["response"]
            assert response["allowed"] or response["status"]["code"] in (403, 422), (body, response)
        else:
            assert (answer.count(b"\n"), b"Traceback" in answer) == (1, False), body
        if number == REVIEWS // 3:
            gc.collect()
            warm = resident_mib()
    gc.collect()
    growth = resident_mib() - warm
    with capsys.disabled():
        if "FLUXQUEUE_FUZZ_REVIEWS" in os.environ:
            took = f"longest {longest[0] * 1e3:.1f} ms of CPU for {len(longest[1])} bytes"
            sys.stdout.write(f"\n{dict(statuses)}, {took}, growth {growth:.1f} MiB\n")
    assert statuses[200] > REVIEWS / 20
    assert growth < MOST_GROWTH_MIB
