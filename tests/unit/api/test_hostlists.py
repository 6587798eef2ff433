import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fluxqueue.api.hostlists import InvalidHostlist, decode, encode, parse

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
    ("text", "message"),
    [
        ("n[1-3", "one \\[ \\] group"),
        ("n1]", "without '\\['"),
        ("n[1],,m", "empty entry"),
        (",", "empty entry"),
        ("n[3-1]", "backwards"),
        ("n[a-b]", "not a number or a range"),
        ("n[]", "not a number or a range"),
        ("n[1][2]", "one \\[ \\] group"),
        ("n[0-999999999]", "more than 100000 hosts"),
        ("n[1-90000],n[1-90000]", "more than 100000 hosts"),
        (f"n[1-9]{'x' * 253}", "longer than 253 characters"),
        ("x" * 254, "longer than 253 characters"),
    ],
)
def test_an_invalid_hostlist_is_refused_with_the_problem(text: str, message: str) -> None:
    with pytest.raises(InvalidHostlist, match=message):
        decode(text)


@given(st.text(alphabet="n10-,[]", max_size=20))
def test_any_text_is_a_hostlist_or_refused(text: str) -> None:
    try:
        hosts = decode(text)
    except InvalidHostlist:
        return
    assert all(hosts)


def test_a_list_is_counted_and_asked_for_one_host_without_being_expanded() -> None:
    listed = parse("n[08-1000000000],login,a[3,7-8]-b", at_most=10**12)
    assert len(listed) == 10**9 - 7 + 1 + 3
    assert [listed[place] for place in (0, 2, 10**9 - 8, 10**9 - 7, 10**9 - 6, len(listed) - 1)] == [
        "n08",
        "n10",
        "n1000000000",
        "login",
        "a3-b",
        "a8-b",
    ]
    with pytest.raises(IndexError):
        listed[len(listed)]


@given(st.lists(st.one_of(NODES, NUMBERED), max_size=50))
def test_each_host_of_a_list_is_the_one_of_its_place(hosts: list[str]) -> None:
    listed = parse(encode(hosts))
    assert [listed[place] for place in range(len(listed))] == hosts


@pytest.mark.parametrize(
    "text",
    ["a[1-1000000]", "a[1-1000000000000000000]", "a," * 131_072, f"a[{'1,' * 131_072}1]", "[" * 262_144],
)
def test_a_hostile_text_costs_no_more_than_it_is_long(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidHostlist) as refused:
        parse(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(str(refused.value)) < 300
    assert most < 1 << 20
