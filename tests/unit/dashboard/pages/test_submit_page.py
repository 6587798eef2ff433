from __future__ import annotations

import pytest
from support.dashboard_site import Stage

from fluxqueue.dashboard.pages.submit_page import Submitted, act, refused_page, submit_page
from fluxqueue.dashboard.site import Asked
from fluxqueue.dashboard.verbs import Refused

HOSTILE = "<script>alert(1)</script>\"'"


async def asked(stage: Stage, **parameters: str) -> Asked:
    viewer = await stage.viewer("alice", ("list", "fluxjobs", "blue"))
    return Asked(viewer, await stage.site.visible(viewer), parameters)


async def test_the_fields_begin_with_the_namespace_that_is_looked_at() -> None:
    stage = Stage()
    text = str((await submit_page(stage.site, await asked(stage, namespace="blue"))).html)
    assert 'id="submit-namespace" value="blue"' in text
    assert 'value="30m"' in text


async def test_what_was_typed_stays_and_is_escaped() -> None:
    stage = Stage()
    form = {"image": HOSTILE, "manifest": HOSTILE}
    text = str(refused_page(stage.site, await asked(stage), form).html)
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") == 2


async def test_a_written_job_is_shown_beside_what_was_asked_for() -> None:
    stage = Stage()
    made = await act(
        stage.site,
        await asked(stage),
        {"action": "write", "namespace": "blue", "image": "example/solver", "nodes": "3"},
    )
    assert not isinstance(made, Submitted)
    assert "completions: 3" in str(made.html)
    assert 'value="example/solver"' in str(made.html)


@pytest.mark.parametrize("action", ["try", "create", ""])
async def test_nothing_is_sent_without_a_job(action: str) -> None:
    stage = Stage()
    question = await asked(stage)
    before = len(stage.api.asked)
    with pytest.raises(Refused, match="write one Job"):
        await act(stage.site, question, {"action": action, "manifest": ""})
    assert len(stage.api.asked) == before
