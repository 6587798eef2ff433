from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_job
from support.queue_builders import a_job

from fluxqueue.api import names
from fluxqueue.queue.model.indexes import done_indexes, hosts_by_index, parse_indexes, write_indexes


def test_indexes_are_read_as_the_job_controller_writes_them() -> None:
    assert parse_indexes("") == set()
    assert parse_indexes("1,3-5,7") == {1, 3, 4, 5, 7}


def test_done_indexes_have_no_node_so_that_position_and_index_agree() -> None:
    done = write_indexes(done_indexes(a_job(make_job().indexed(4).with_("status.completedIndexes", "0,2"))))
    assert hosts_by_index(["n7", "n8"], done) == (names.NO_NODE, "n7", names.NO_NODE, "n8")
    assert hosts_by_index(["n7", "n8"], "") == ("n7", "n8")


def test_a_start_with_fewer_pods_leaves_the_last_indexes_without_a_node() -> None:
    assert hosts_by_index(["n7"], "0,2") == (names.NO_NODE, "n7", names.NO_NODE)
    assert hosts_by_index(["n7", "n8"], "0,5") == (names.NO_NODE, "n7", "n8")


@given(st.sets(st.integers(0, 50)))
def test_indexes_are_written_as_kubernetes_writes_them(indexes: set[int]) -> None:
    assert parse_indexes(write_indexes(indexes)) == indexes
