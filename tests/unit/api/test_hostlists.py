import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fluxqueue.api.hostlists import InvalidHostlist, decode, encode

NODES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
NUMBERED = st.builds(
    lambda stem, width, number: f"{stem}{number:0{width}d}",
    st.sampled_from(["n", "n0", "gpu-", ""]),
    st.integers(1, 4),
    st.integers(0, 200),
)


@given(st.lists(st.one_of(NODES, NUMBERED), max_size=50))
@example(["n9", "n10", "n011", "n12"])
@example(["n099", "n100", "n0100"])
@example(["n1", "n1", "n2", "n2", "n3"])
@example(["9999999999999999999999", "10000000000000000000000"])
def test_every_list_of_nodes_comes_back_in_order_with_its_repetitions(hosts: list[str]) -> None:
    assert decode(encode(hosts)) == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1", "n3"], "n[1,3]"),
        (["n3", "n2", "n1"], "n[3,2,1]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "gpu1", "n2"], "n1,gpu1,n2"),
        (["n1", "n1"], "n[1,1]"),
        (["none.invalid", "n1"], "none.invalid,n1"),
    ],
)
def test_neighbours_become_ranges_and_nothing_is_sorted(hosts: list[str], text: str) -> None:
    assert encode(hosts) == text
    assert decode(text) == hosts


def test_what_others_write_is_read_too() -> None:
    assert decode("rack[1-2]-node,x[07-09,3]") == ["rack1-node", "rack2-node", "x07", "x08", "x09", "x3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n[1-3", "one \\[ \\] group"),
        ("n1]", "without '\\['"),
        ("n[1],,m", "empty entry"),
        (",", "empty entry"),
        ("n[3-1]", "backwards"),
        ("n[a-b]", "not a number or a range"),
        ("n[]", "not a number or a range"),
        ("n[1][2]", "one \\[ \\] group"),
        ("n[0-999999999]", "not believable"),
        ("n[1-900000],n[1-900000]", "more than 1000000 hosts"),
    ],
)
def test_what_is_no_hostlist_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InvalidHostlist, match=said):
        decode(text)


@given(st.text(alphabet="n10-,[]", max_size=20))
def test_any_text_is_a_hostlist_or_refused(text: str) -> None:
    try:
        hosts = decode(text)
    except InvalidHostlist:
        return
    assert all(hosts)
