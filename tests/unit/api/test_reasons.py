"""A reason is one entry of one table, and every list of reasons that is written elsewhere has exactly
these.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.reasons import REASONS, Report, reasons_that

_CRDS = Path(__file__).parents[3] / "deploy" / "crds.yaml"


def test_each_reason_has_an_entry_in_the_order_of_their_names() -> None:
    assert list(REASONS) == list(Reason)


def test_the_crd_lists_the_reasons_that_are_shown() -> None:
    kinds = {each["metadata"]["name"]: each for each in yaml.safe_load_all(_CRDS.read_text("utf-8")) if each}
    (version,) = kinds["fluxjobs.jobs.converged-computing.org"]["spec"]["versions"]
    listed = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["reason"]["enum"]
    assert [reason for reason in listed if reason] == [str(reason) for reason in Reason if reason]


def test_of_several_problems_one_is_most_urgent() -> None:
    urgencies = [facts.urgency for facts in REASONS.values() if facts.urgency is not None]
    assert sorted(urgencies) == list(range(len(urgencies)))


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason], ids=str)
def test_the_facts_of_a_reason_agree_with_each_other(reason: Reason) -> None:
    facts = REASONS[reason]
    assert facts.matched or not facts.limit, "work that waits for a limit is matched as soon as there is room"
    assert not (facts.for_others and facts.matched), "work that waits for other work is not matched before"
    assert facts.report is Report.TO_A_PERSON or not facts.stalled, (
        "somebody must be told what goes no further without a person"
    )
    for sentence in (facts.why, facts.helps):
        assert sentence == sentence.strip()
        assert not sentence.endswith("."), "it is part of a line"


def test_reasons_are_chosen_by_their_facts() -> None:
    assert reasons_that(lambda facts: facts.limit) == {Reason.QUEUE_LIMIT, Reason.ACCOUNT_LIMIT}
