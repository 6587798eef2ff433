import msgspec
from support.dashboard_site import at, job

from fluxqueue.api.pods import Pod
from fluxqueue.dashboard.timeline import timeline


def bound(seconds: float) -> Pod:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(seconds)}]
    return msgspec.convert({"metadata": {"name": f"p{seconds}"}, "status": {"conditions": conditions}}, Pod)


def test_waiting_work_has_one_step_behind_it() -> None:
    steps = timeline(job("a"))
    assert [(step.name, step.at is not None, step.current) for step in steps] == [
        ("Submitted", True, True),
        ("Allocated", False, False),
        ("Running", False, False),
        ("Completed", False, False),
    ]


def test_steps_say_how_long_each_took() -> None:
    work = job(
        "a",
        state="Completed",
        submittedAt=at(-600),
        allocatedAt=at(-480),
        startedAt=at(-478),
        finishedAt=at(-100),
    )
    steps = timeline(work, [bound(-479), bound(-475)])
    assert [(step.name, step.after) for step in steps] == [
        ("Submitted", ""),
        ("Allocated", "2m"),
        ("Released", "1s"),
        ("Running", "1s"),
        ("Completed", "6m18s"),
    ]
    assert not any(step.current for step in steps)


def test_the_end_has_the_name_of_the_state() -> None:
    assert timeline(job("a", state="Failed", finishedAt=at(-1)))[-1].name == "Failed"
    assert timeline(job("a", state="Cancelled", finishedAt=at(-1)))[-1].name == "Cancelled"


def test_allocated_work_whose_pods_have_no_node_is_not_released() -> None:
    steps = timeline(
        job("a", state="Allocated", allocatedAt=at(-5)), [msgspec.convert({"metadata": {"name": "p"}}, Pod)]
    )
    assert [(step.name, step.at is not None) for step in steps][1:3] == [
        ("Allocated", True),
        ("Released", False),
    ]


def test_times_that_cannot_be_read_are_left_out() -> None:
    steps = timeline(job("a", state="Running", submittedAt="yesterday", allocatedAt="", startedAt=at(-3)))
    assert [step.at is not None for step in steps] == [False, False, True, False]
