import pytest
from support.builders import make_queue
from support.dashboard_site import PeopleApi, job

from fluxqueue.api.fluxjobs import FluxJob
from fluxqueue.dashboard.verbs import Refused, carry_out, objection, read_change
from fluxqueue.kube.kinds import FLUXJOBS, FLUXQUEUES


@pytest.mark.parametrize(
    ("name", "form", "spec"),
    [
        ("hold", {}, {"hold": True}),
        ("release", {}, {"hold": False}),
        ("cancel", {}, {"cancel": True}),
        ("prioritize", {"priority": " -5 "}, {"priority": -5}),
        ("prioritize", {"priority": "-00000000005000"}, {"priority": -5000}),
        ("move", {"queue": " night "}, {"queue": "night"}),
    ],
)
def test_a_verb_is_a_small_change_of_the_spec(
    name: str, form: dict[str, str], spec: dict[str, object]
) -> None:
    assert read_change(name, form).spec == spec


@pytest.mark.parametrize(
    ("name", "form", "sentence"),
    [
        ("prioritize", {"priority": "high"}, "is not a priority"),
        ("prioritize", {"priority": "99999999999999"}, "is not a priority"),
        ("prioritize", {}, "is not a priority"),
        ("move", {"queue": " "}, "name the queue"),
        ("move", {"queue": "x" * 300}, "name the queue"),
        ("destroy", {}, "there is no verb 'destroy'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(name: str, form: dict[str, str], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        read_change(name, form)


@pytest.mark.parametrize(
    ("name", "work", "expected"),
    [
        ("hold", job("a"), ""),
        ("hold", job("a", spec={"hold": True}), "it is held"),
        ("release", job("a"), "it is not held"),
        ("release", job("a", spec={"hold": True}), ""),
        ("move", job("a", state="Running"), "it runs: only what waits can be changed"),
        ("prioritize", job("a", state="Allocated"), "it is being started: only what waits can be changed"),
        ("hold", job("a", state="Completed"), "it has ended"),
        ("cancel", job("a", state="Failed"), "it has ended"),
        ("cancel", job("a", state="Running"), ""),
        ("cancel", job("a", spec={"cancel": True}), "it is being cancelled"),
        (
            "cancel",
            job("a", kind="Pod", state="Running"),
            "a pod that runs cannot be stopped without deleting it: kubectl delete pod a ends it",
        ),
    ],
)
def test_a_verb_has_the_objections_of_kubectl_fluxqueue(name: str, work: FluxJob, expected: str) -> None:
    assert objection(name, work) == expected


async def test_a_patch_is_sent_in_the_name_of_the_person_and_names_the_uid() -> None:
    api = PeopleApi()
    token = api.person("alice")
    said = await carry_out(api.with_token(token), job("a"), read_change("hold", {}))
    assert said == "job/a is held."
    ((who, path, body),) = api.writes()
    assert who == "alice"
    assert path == FLUXJOBS.path("blue", job("a").metadata.name)
    assert body == {"metadata": {"uid": "blue-a"}, "spec": {"hold": True}}


async def test_what_is_not_possible_is_not_sent() -> None:
    api = PeopleApi()
    with pytest.raises(Refused, match="it runs"):
        await carry_out(
            api.with_token(api.person("alice")), job("a", state="Running"), read_change("hold", {})
        )
    assert not api.asked


async def test_the_api_server_decides() -> None:
    api = PeopleApi()
    token = api.person("alice")
    api.refused.add(("alice", FLUXJOBS.path("blue", job("a").metadata.name)))
    with pytest.raises(
        Refused, match="you may not cancel work in the namespace blue; the role edit there lets you"
    ):
        await carry_out(api.with_token(token), job("a"), read_change("cancel", {}))
    api.failing = True
    with pytest.raises(Refused, match="job/a: "):
        await carry_out(api.with_token(token), job("a"), read_change("cancel", {}))


async def test_work_is_not_moved_to_a_queue_that_does_not_exist() -> None:
    api = PeopleApi()
    alice = api.with_token(api.person("alice"))
    # unreadable
    assert (
        await carry_out(alice, job("a"), read_change("move", {"queue": "nigth"}))
        == "job/a is moved to the queue nigth."
    )
    api.objects[FLUXQUEUES.path()] = {"items": [make_queue("night")]}
    with pytest.raises(
        Refused, match=r"^job/a: there is no queue 'nigth': did you mean night\? there are default, night$"
    ):
        await carry_out(alice, job("a"), read_change("move", {"queue": "nigth"}))
    for queue in ("night", "default"):
        assert (
            await carry_out(alice, job("a"), read_change("move", {"queue": queue}))
            == f"job/a is moved to the queue {queue}."
        )
    assert len(api.writes()) == 3
