"""No module reads an annotation that decoding drops."""

from __future__ import annotations

from fluxqueue.api import names
from fluxqueue.api.annotations import READ_ANNOTATIONS
from fluxqueue.queue.model.sources import kueue, leaderworkersets, volcano


def test_all_annotations_that_are_named_are_kept() -> None:
    named = {
        text
        for name, text in vars(names).items()
        if name.endswith(("_ANNOTATION", "_KEY")) and isinstance(text, str)
    }
    assert named <= READ_ANNOTATIONS
    assert {*names.START_ANNOTATIONS, *names.TOPOLOGY_KEYS, *names.ALLOCATION_ANNOTATIONS} <= READ_ANNOTATIONS


def test_what_other_projects_say_of_gangs_is_kept() -> None:
    read = {kueue._COUNT, leaderworkersets._SIZE, leaderworkersets._EXCLUSIVE, *volcano._ANNOTATIONS}
    assert read <= READ_ANNOTATIONS
