"""What people read (reasons, Events, warnings, the output of the plugin) has no words that only who knows the
code understands.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.user_texts import jargon_in, texts_in

ROOT = Path(__file__).resolve().parents[2]
SHOWN_TO_PEOPLE = (
    "api",
    "cli",
    "client",
    "fluxion/match/explain.py",
    "kube",
    "minicluster",
    "queue/cluster",
    "queue/intake",
    "queue/miniclusters",
    "queue/model",
    "queue/noderules",
    "queue/recovery",
    "queue/release",
    "queue/requeue",
    "queue/scheduling",
    "queue/status",
    "queue/tracking",
    "scheduler_plugin/assignments.py",
    "scheduler_plugin/dispatcher.py",
    "scheduler_plugin/extender",
    "webhook",
)
OTHERS = {
    "hostlist {}": "the RFC's own name, in errors that callers catch",
    "the resource graph and matcher behind gRPC": "help of a program that people of a site run",
    "the queue: intake, scheduling, release, tracking": "the same",
    "both hostlist and clusters": "a field of the MiniCluster",
    "it is a remnant of earlier versions": "an ordinary word there",
    "a foreign matcher without a clock": "a feature that administrators turn on, and a term of the glossary",
}
"""Beginnings or parts of texts that may stay, and why."""


def modules() -> list[Path]:
    return [
        path
        for name in SHOWN_TO_PEOPLE
        for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]


@pytest.mark.parametrize("name", SHOWN_TO_PEOPLE)
def test_texts_that_reach_people_are_in_plain_words(name: str) -> None:
    assert (ROOT / name).exists()
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {word!r} in {text!r}"
        for path in modules()
        if path.is_relative_to(ROOT / name)
        for line, text in texts_in(path)
        if (word := jargon_in(text)) is not None and not any(known in text for known in OTHERS)
    ]
    assert odd == []


def test_what_may_stay_is_still_there() -> None:
    texts = [text for path in modules() for _, text in texts_in(path)]
    assert [known for known in OTHERS if not any(known in text for text in texts)] == []


def test_refusals_of_the_admission_policies_are_in_plain_words() -> None:
    policies = "\n".join(
        path.read_text() for path in (ROOT / "charts/fluxqueue/templates/admission").glob("*.yaml")
    )
    sentences = re.findall(r"""^\s+message: ["'](.+)["']$""", policies, re.MULTILINE)
    assert len(sentences) > 5
    assert [sentence for sentence in sentences if jargon_in(sentence)] == []


def test_code_in_a_text_is_no_jargon() -> None:
    assert jargon_in("the queue may not read it: add it to gangs.resources of the chart") is None
    assert jargon_in("choose another --match-policy") is None
    assert jargon_in("its slots are given back") == "slots"
