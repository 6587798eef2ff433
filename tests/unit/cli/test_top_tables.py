from support.live_queues import NOW
from support.node_work import node
from support.plugin_server import fluxjob

from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, QueueState
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.cli import top_tables
from fluxqueue.cli.live_queue import QueueView
from fluxqueue.cli.top_tables import job_table, node_table, queue_table, summary

WAITING = fluxjob("waiting", state="Pending", reason="WaitingForNodes", position=1, queue="night")
RUNNING = fluxjob("running", state="Running", nodes="n1")


def test_work_is_in_the_order_of_the_queue_and_found_by_any_word() -> None:
    assert job_table([WAITING, RUNNING], NOW, namespaces=False).keys == ("fj-running", "fj-waiting")
    for word in ("waitingfor", "night", "job/wait", "pending"):
        assert job_table([WAITING, RUNNING], NOW, namespaces=True, wanted=word).keys == ("fj-waiting",)


def test_a_table_is_bounded() -> None:
    many = [fluxjob(f"job-{number}", state="Running") for number in range(top_tables.MOST_ROWS + 5)]
    assert len(job_table(many, NOW, namespaces=False).keys) == top_tables.MOST_ROWS


def test_a_queue_without_an_object_is_there_if_it_has_work() -> None:
    night = FluxQueue(metadata=ObjectMeta(name="night"), spec=FluxQueueSpec(state=QueueState.HELD))
    done = fluxjob("done", state="Completed")
    assert queue_table([night], [WAITING, RUNNING, done]).cells == (
        ("default", "", "", "", "1", "0"),
        ("night", "held", "easy", "0", "0", "1"),
    )
    assert queue_table([night], [], "x").cells == ()


def test_the_first_line_counts_work_and_nodes() -> None:
    view = QueueView(1, (WAITING, RUNNING), (node("n1"), node("n2", cordoned=True)))
    assert summary(view) == "1 running, 1 waiting, 0 ended, 1 of 2 nodes take work"
    assert [row[0] for row in node_table(view.uses(), "n2").cells] == ["n2"]
