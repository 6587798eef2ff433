"""Followers that wait for their leader, lose it, or are stopped."""

from __future__ import annotations

from support.minicluster_pods import pods, wait_until

from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE


def test_followers_join_with_one_attempt_each_even_when_the_leader_comes_late() -> None:
    with pods("true", size=4) as cluster:
        for index in (1, 2, 3):
            cluster.start(index)
        assert not cluster.ready(1)
        cluster.start(0)
        codes = [cluster.finish(index)[0] for index in range(4)]
        assert codes == [0] * 4
        assert len(cluster.events("connecting")) == len(cluster.events("joined")) == 3
        assert cluster.events("missed") == []


def test_readiness_is_that_of_the_brokers() -> None:
    with pods("sleep 60", size=3, minSize=2) as cluster:
        cluster.make(1)
        assert not cluster.ready(1)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        assert [cluster.ready(index) for index in (0, 1)] == [True, True]


def test_a_follower_that_loses_its_leader_joins_the_next_one() -> None:
    with pods("true", size=2, harness={"outcomes": {0: [{"lost": 9}]}}) as cluster:
        cluster.start(0)
        cluster.start(1)
        assert cluster.finish(0)[0] == 9
        cluster.start(0)
        assert cluster.finish(0)[0] == 0
        assert cluster.finish(1)[0] == 0
        assert len(cluster.events("joined")) == 2


def test_a_follower_whose_leader_is_gone_ends_with_a_message() -> None:
    with pods(
        "true",
        size=2,
        harness={"outcomes": {0: [{"lost": 9}]}},
    ) as cluster:
        cluster.set(fq_patience=1)
        codes, _, errors = cluster.run()
        assert codes == [9, EXIT_REPLACEABLE]
        assert "rank 1: the leader 127.0.0.1 is gone" in errors[1]


def test_a_broker_that_ends_at_once_is_not_tried_for_ever() -> None:
    broken = {0: [{"exit": 1, "after": 1}], 1: [{"exit": 1}, {"exit": 2}, {"exit": 3}]}
    with pods("true", size=2, harness={"outcomes": broken}) as cluster:
        cluster.set(fq_patience=0)
        cluster.start(1)
        code, _, error = cluster.finish(1)
        assert code == EXIT_REPLACEABLE
        assert "gone" in error or "ends at once, last with code 3" in error


def test_complete_workers_end_after_their_first_broker_whatever_its_code() -> None:
    with pods(
        "true", size=2, flux={"completeWorkers": True}, harness={"outcomes": {0: [{"lost": 9}]}}
    ) as cluster:
        assert cluster.run()[0] == [9, 0]


def test_a_follower_that_is_asked_to_stop_may_be_replaced() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        assert cluster.finish(1)[0] == EXIT_REPLACEABLE


def test_a_leaving_follower_is_drained_first_and_its_jobs_may_end() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.wait_for("undrained")  # a new pod takes work, whatever its rank was drained for before
        busy = cluster.log.with_suffix(".busy-1")
        busy.write_text("f1\n")
        cluster.stop(1)
        cluster.wait_for("asked", 2)
        assert cluster.processes[1].poll() is None
        busy.unlink()
        assert cluster.finish(1)[0] == EXIT_REPLACEABLE
        assert [event["drained"] for event in cluster.events("drained")] == [1]
        assert cluster.calls("resource", "drain")[0][-1] == "its pod is being stopped"


def test_a_follower_waits_for_its_jobs_no_longer_than_the_grace_period() -> None:
    template = {"spec": {"terminationGracePeriodSeconds": 11}}
    with pods("sleep 60", size=2, podTemplate=template) as cluster:
        cluster.log.with_suffix(".busy-1").write_text("f1\n")
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        # How often it asks in its one second is the machine's to say; that it ends while its work goes on is
        # the point.
        assert cluster.finish(1)[0] == EXIT_REPLACEABLE
        assert [event["drained"] for event in cluster.events("drained")] == [1]
        assert cluster.log.with_suffix(".busy-1").exists()


def test_where_all_of_it_ends_no_follower_waits_for_its_work() -> None:
    with pods("sleep 60", size=2) as cluster:
        cluster.log.with_suffix(".busy-1").write_text("f1\n")
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("joined")
        cluster.stop(1)
        cluster.wait_for("asked")
        cluster.stop(0)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [EXIT_REPLACEABLE, EXIT_REPLACEABLE]


def test_a_follower_whose_broker_is_shutting_down_lets_it_end() -> None:
    with pods("true", size=2) as cluster:
        cluster.hold(1)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("finalizing")
        cluster.stop(1)
        wait_until(lambda: cluster.calls("uptime") != [], "the follower asks for the state of its broker")
        cluster.hold(1, False)
        assert [cluster.finish(index)[0] for index in (0, 1)] == [0, 0]
        assert cluster.events("broken") == cluster.events("left") == []


def test_a_follower_waits_for_a_shutdown_no_longer_than_the_grace_period() -> None:
    with pods("true", size=2, podTemplate={"spec": {"terminationGracePeriodSeconds": 11}}) as cluster:
        cluster.hold(1)
        cluster.start(0)
        cluster.start(1)
        cluster.wait_for("finalizing")
        cluster.stop(1)
        assert cluster.finish(1)[0] == EXIT_REPLACEABLE
        assert len(cluster.events("broken")) == 1


def test_a_follower_that_is_stopped_while_it_waits_for_its_leader_starts_no_broker() -> None:
    with pods("true", size=2) as cluster:
        process = cluster.start(1, "x", FLUX_STANDIN_SCRIPT="/nowhere")
        wait_until(
            lambda: (cluster.directory(1) / "mount" / "flux-connect.sh").exists(), "it prepares its pod"
        )
        process.terminate()
        assert cluster.finish(1)[0] == EXIT_REPLACEABLE
        assert cluster.calls("start") == []


def test_brokers_that_end_at_once_while_names_are_late_are_tried_again() -> None:
    with pods("true", size=2, harness={"outcomes": {1: [{"exit": 1}] * 4}}) as cluster:
        cluster.set(fq_names_s=60)
        codes, _, errors = cluster.run()
        assert codes == [0, 0], errors
        assert errors[1].count("the broker ended with code 1") == 4
