"""A long mapping that is kept as JSON reads like a plain one."""

from __future__ import annotations

import msgspec
import pytest

from fluxqueue.api.pods import PodSpec
from fluxqueue.api.storedjson import StoredJson, plain, stored

LONG = {"nodeAffinity": {"terms": [f"node-{number}" for number in range(500)]}, "podAffinity": {}}


def test_only_what_is_long_is_stored_and_reads_as_before() -> None:
    assert stored({"a": 1}) == {"a": 1}
    assert not isinstance(stored({"a": 1}), StoredJson)
    kept = stored(LONG)
    assert isinstance(kept, StoredJson)
    assert kept
    assert (len(kept), [*kept], kept["podAffinity"], kept.get("other"), "nodeAffinity" in kept) == (
        2,
        [*LONG],
        {},
        None,
        True,
    )
    assert {**kept} == LONG
    assert stored(kept) is kept


def test_names_of_nodes_take_a_third_of_their_text_at_most() -> None:
    names = [f"node-{number * 7_919 % 100_003:05}.example.com" for number in range(500)]
    kept = stored({"values": names})
    assert isinstance(kept, StoredJson)
    assert kept.size < len(msgspec.json.encode(names)) / 3


def test_equal_values_are_equal_however_they_are_kept() -> None:
    assert stored(LONG) == LONG == stored({**LONG})
    assert stored(LONG) != {**LONG, "more": 1}
    assert PodSpec(affinity=stored(LONG)) == PodSpec(affinity=LONG)


def test_it_is_encoded_as_what_it_stands_for() -> None:
    spec = PodSpec(affinity=stored(LONG))
    assert msgspec.to_builtins(spec, enc_hook=plain)["affinity"] == LONG
    assert msgspec.json.encode(spec, enc_hook=plain) == msgspec.json.encode(PodSpec(affinity=LONG))
    with pytest.raises(TypeError, match="set cannot be encoded"):
        plain({1})
