"""What is nested deeper than any reader goes does not keep the rest from being read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluxqueue.api.nesting import limit_depth

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(anything)
def test_what_is_not_deep_stays_as_it_is(value: Any) -> None:
    text = json.dumps(value).encode()
    assert limit_depth(text) == text


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]"), (b'[{"]}":', b"}]")])
def test_what_is_deep_is_cut_and_its_neighbours_are_kept(opening: bytes, closing: bytes) -> None:
    text = b'{"name":"x\\"{[","deep":' + opening * 9_000 + b"1" + closing * 9_000 + b',"after":{"b":[1,2]}}'
    found = json.loads(limit_depth(text))
    assert (found["name"], found["after"]) == ('x"{[', {"b": [1, 2]})


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_come_back(data: bytes) -> None:
    assert isinstance(limit_depth(data), bytes)


def test_a_text_that_anybody_can_send_is_given_up_after_so_many_tokens() -> None:
    text = b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    assert limit_depth(text, 20_000) == limit_depth(text)
    with pytest.raises(
        msgspec.DecodeError, match="nested too deeply, and has more than 5000 strings and brackets"
    ):
        limit_depth(text, 5_000)
