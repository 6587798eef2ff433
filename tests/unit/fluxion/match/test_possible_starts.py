"""Requests without a plan are tried at few times, and get the start that trying all times would give."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from support.fluxion_builders import NOW, ask, check_books, engine, jobspec, nodes, slot

from fluxqueue.fluxion.changes import CancelJobs
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.match.matcher import Matcher
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, MatchResult, MatchVerdict, Pool

HOST = "kubernetes.io/hostname"
Rule = dict[str, Any]


def cluster(hosts: int, cpu: int, ports: int = 8) -> Engine:
    return engine(
        *(
            GraphNodeSpec(
                f"n{number}",
                (Pool("cpu", cpu, 1), Pool("ports", ports, 1)),
                (),
                {HOST: f"n{number}"} | ({"zone": f"z{number % 3}"} if number % 4 else {}),
            )
            for number in range(hosts)
        )
    )


def request(*parts: dict[str, Any], rules: Sequence[Rule] = (), duration: int = 60) -> str:
    spec = json.loads(jobspec(*parts, duration=duration))
    spec["attributes"]["system"]["domains"] = list(rules)
    return json.dumps(spec)


def spread(hosts: int, skew: int = 1) -> Rule:
    return {"key": HOST, "skew": skew, "counts": {f"n{number}": 0 for number in range(hosts)}}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The later starts at which a placement was searched."""
    starts: list[int] = []
    place = Matcher._try

    def counted(self: Matcher, wanted: Any, window: Any) -> Any:
        if window.start > 1_000:
            starts.append(window.start)
        return place(self, wanted, window)

    monkeypatch.setattr(Matcher, "_try", counted)
    return starts


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (request(slot(200, cpu=2), rules=[spread(200)]), 1_459),
        (request(slot(200, cpu=1), rules=[spread(200)]), 1_458),
        (request(slot(2, cpu=2), rules=[{"together": [HOST]}]), None),
        (request(*(slot(40, f"w{cpu}", cpu=1 + cpu % 2, ports=1 + cpu) for cpu in range(4))), None),
    ],
    ids=["whole", "one on each", "together", "sizes"],
)
def test_of_four_hundred_ends_few_are_tried(tried: list[int], text: str, start: int | None) -> None:
    made = cluster(200, 2)
    for number in range(400):
        assert ask(made, jobspec(slot(1, cpu=1), duration=60 + number)).verdict is MatchVerdict.GRANTED
    tried.clear()
    answer = ask(made, text, reserve=True)
    if start is not None:
        assert (answer.verdict, answer.at) == (MatchVerdict.RESERVED, start)
    assert len(tried) <= 3
    check_books(made)


def a_rule(rng: random.Random, hosts: int) -> Rule:
    key = rng.choice([HOST, "zone", ""])
    counts = [f"n{number}" for number in range(hosts)] if key == HOST else ["z0", "z1", "z2"]
    return rng.choice(
        [
            {"together": [key]},
            {"together": [HOST, "zone"]},
            {"key": key, "most": rng.randint(1, 3)},
            {"whole": True},
            {"once": {"ports": rng.randint(1, 3)}},
            {
                "key": key or "zone",
                "skew": rng.randint(1, 2),
                "counts": {name: rng.randint(0, 2) for name in counts[: rng.choice([1, 2, 99])]},
                "zero": rng.random() < 0.3,
            },
        ]
    )


def a_request(rng: random.Random, hosts: int) -> str:
    rules = [a_rule(rng, hosts) for _ in range(rng.choice([0, 1, 1, 2]))]
    parts = []
    for number in range(rng.choice([1, 1, 2, 3, 5] if rules else [2, 3, 5, 12])):
        label, needs = (
            f"w{number}",
            {"cpu": rng.randint(1, 4)} | rng.choice([{}, {"ports": rng.randint(1, 3)}]),
        )
        wanted = rng.randint(1, 4)
        parts.append(
            nodes(rng.randint(1, 2), slot(rng.choice([1, 1, 2]), label, **needs))
            if rng.random() < 0.2
            else slot(wanted, label, **needs)
        )
    return request(*parts, rules=rules, duration=rng.randint(5, 80))


def answers_of(seed: int) -> list[MatchResult]:
    """Requests of many forms, some of which have reservations already that may improve."""
    rng = random.Random(seed)
    hosts = rng.randint(2, 6)
    made, call, answers = cluster(hosts, rng.randint(2, 6), rng.randint(2, 6)), NOW, list[MatchResult]()
    for jobid in range(1, 40):
        if jobid % 3:
            text = a_request(rng, hosts)
        else:
            text = jobspec(slot(rng.randint(1, 4), cpu=rng.randint(1, 2)), duration=rng.randint(5, 120))
        answers.append(ask(made, text, jobid, call, reserve=rng.random() < 0.7))
        if rng.random() < 0.2:
            gone = rng.choice(answers).jobid
            made.apply([CancelJobs([gone])], call)
            call = CallContext(now=(call.now or 0) + rng.randint(0, 5))
            again = rng.choice(answers).jobid
            answers.append(ask(made, a_request(rng, hosts), again, call, reserve=True, improve=True))
    check_books(made)
    return answers


def test_the_start_is_the_one_that_trying_all_times_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = [answers_of(seed) for seed in range(12)]
    monkeypatch.setattr(Matcher, "_possible_starts", lambda *_: None)
    for seed, answers in enumerate(bounded):
        assert answers == answers_of(seed), f"seed {seed}"
    verdicts = [each.verdict for answers in bounded for each in answers]
    assert verdicts.count(MatchVerdict.RESERVED) > 50
