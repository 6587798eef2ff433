from support.builders import make_job
from support.queue_builders import a_job, around

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.intake.describe import describe_job
from fluxqueue.queue.model.jobspecs import reservation_in
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.model.reservation_plans import ReservationPlan

COURSE = ReservationPlan("course", "uid", namespaces=frozenset({"default"}))


def described(reservation: str | None, plan: ReservationPlan | None = COURSE) -> NewWorkload:
    builder = make_job("a").indexed(2).suspended().annotation("fluxqueue/suspended-by", "webhook")
    if reservation is not None:
        builder = builder.annotation("fluxqueue/reservation", reservation)
    found = describe_job(a_job(builder), around(reservations={plan.name: plan} if plan is not None else {}))
    assert found is not None
    return found


def test_work_without_the_annotation_is_for_no_reservation() -> None:
    assert reservation_in(described(None).jobspec) == ""


def test_work_that_may_use_its_reservation_has_it_in_its_jobspec_and_shape() -> None:
    work = described("course")
    assert (reservation_in(work.jobspec), work.reason) == ("course", Reason.NONE)
    assert work.shape != described(None).shape


def test_work_that_names_none_that_exists_waits_and_is_told_the_remedy() -> None:
    work = described("cuorse")
    assert work.reason is Reason.RESERVATION_NOT_ALLOWED
    expected = (
        "annotation fluxqueue/reservation: there is no FluxReservation 'cuorse': have it created, "
        "or remove the annotation"
    )
    assert work.message == f"Job default/a: {expected}"
    assert reservation_in(work.jobspec) == "cuorse", "so that it is looked at again when that is created"


def test_work_of_others_waits() -> None:
    work = described("course", ReservationPlan("course", "uid", namespaces=frozenset({"other"})))
    assert work.reason is Reason.RESERVATION_NOT_ALLOWED
    assert "the FluxReservation 'course' is not for namespace 'default'" in work.message


def test_what_is_no_name_is_an_invalid_request() -> None:
    work = described("no name")
    assert work.reason is Reason.INVALID_REQUEST
    assert "'no name' is no name of a FluxReservation" in work.message
