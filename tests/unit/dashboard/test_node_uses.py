from decimal import Decimal

from fluxqueue.dashboard.node_uses import node_uses
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of


def jobspec(*sizes: tuple[int, int]) -> str:
    return jobspec_of(
        "blue/a",
        [SizedPods({"cpu": Decimal(cpu), "memory": Decimal(1 << 30)}, pods) for cpu, pods in sizes],
        duration_s=60,
    )


def test_each_rank_has_its_slot_on_its_node() -> None:
    uses = node_uses(jobspec((2, 3)), "node-[1-2],node-1")
    assert {host: (use.pods, use.amounts["cpu"]) for host, use in uses.items()} == {
        "node-1": (2, 4_000),
        "node-2": (1, 2_000),
    }


def test_ranks_of_several_sizes_follow_each_other() -> None:
    # a jobspec has its smallest slots first
    uses = node_uses(jobspec((4, 1), (1, 2)), "node-2,node-2,node-1")
    assert uses["node-1"].amounts["cpu"] == 4_000
    assert uses["node-2"].amounts["cpu"] == 2_000


def test_what_cannot_be_read_has_nodes_without_amounts_or_no_nodes() -> None:
    for text in ("", "{", "[]", '{"resources": 3}', "null"):
        assert {host: use.pods for host, use in node_uses(text, "node-[1-2]").items()} == {
            "node-1": 1,
            "node-2": 1,
        }
    assert node_uses(jobspec((1, 1)), "node-[") == {}
    assert node_uses(jobspec((1, 1)), "") == {}
