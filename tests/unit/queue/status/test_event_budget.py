from fluxqueue.queue.status.event_budget import EventBudget


def test_so_many_at_once_and_then_at_the_rate() -> None:
    budget = EventBudget(every_s=2.0, most=3)
    assert [budget.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not budget.take(101.0)
    assert [budget.take(102.0), budget.take(102.0)] == [True, False]


def test_a_quiet_time_saves_no_more_than_so_many() -> None:
    budget = EventBudget(every_s=1.0, most=2)
    assert budget.take(1.0)
    assert [budget.take(1_000.0) for _ in range(3)] == [True, True, False]
