import pytest

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.api.schedulers import (
    InvalidScheduler,
    choose_scheduler,
    invalid_scheduler_label,
    parse_scheduler,
    queue_name_of,
)

STOCK, FLUXION = SchedulerName.STOCK, SchedulerName.FLUXION


@pytest.mark.parametrize(
    ("name", "message", "queue", "default", "chosen"),
    [
        pytest.param(None, None, None, STOCK, STOCK, id="the installation's, where nobody says one"),
        pytest.param(
            "default-scheduler", None, None, FLUXION, FLUXION, id="the API server's own name says nothing"
        ),
        pytest.param("", None, STOCK, FLUXION, STOCK, id="the queue before the installation"),
        pytest.param(None, "fluxion", STOCK, STOCK, FLUXION, id="the label before the queue"),
        pytest.param(None, "stock", FLUXION, FLUXION, STOCK, id="the label says stock"),
        pytest.param(None, "volcano", FLUXION, STOCK, FLUXION, id="a label that cannot be read is none"),
        pytest.param(
            "FluxionScheduler", "stock", STOCK, STOCK, FLUXION, id="ours by name, whatever the rest says"
        ),
        pytest.param("volcano", "fluxion", FLUXION, FLUXION, STOCK, id="another scheduler keeps its pods"),
        pytest.param(
            None, "fluxion", FLUXION, None, STOCK, id="nothing is left to a scheduler that is not installed"
        ),
        pytest.param("FluxionScheduler", None, None, None, FLUXION, id="but what names it"),
    ],
)
def test_who_binds(
    name: str | None,
    message: str | None,
    queue: SchedulerName | None,
    default: SchedulerName | None,
    chosen: SchedulerName,
) -> None:
    assert choose_scheduler(name, message, queue, default) is chosen


def test_an_invalid_scheduler_label_gets_a_message_with_the_accepted_names() -> None:
    with pytest.raises(InvalidScheduler, match="'Fluxion' is no scheduler: write stock or fluxion"):
        parse_scheduler("Fluxion")
    bad, good = (ObjectMeta(labels={"fluxqueue/scheduler": value}) for value in ("", "stock"))
    assert invalid_scheduler_label("Job a/b", good, None, ObjectMeta()) is None
    assert (
        invalid_scheduler_label("Job a/b", good, bad)
        == "Job a/b: label fluxqueue/scheduler: '' is no scheduler: write stock or fluxion"
    )


def test_the_queue_of_an_object_is_named_by_its_label_its_namespace_or_the_default() -> None:
    theirs = {"fluxqueue/queue": "theirs"}
    assert queue_name_of(ObjectMeta(labels={"fluxqueue/queue": "mine"}), theirs) == "mine"
    assert queue_name_of(ObjectMeta(labels={"fluxqueue/queue": ""}), theirs) == "theirs"
    assert queue_name_of(ObjectMeta(), {}) == "default"
