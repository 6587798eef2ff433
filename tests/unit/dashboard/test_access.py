from support.dashboard_site import RIGHT, Clock, PeopleApi

from fluxqueue.dashboard.access import (
    EVERYTHING,
    MOST_NAMESPACES,
    NODES_RIGHT,
    AccessReviews,
    Right,
    Visible,
    lists,
    patches,
)
from fluxqueue.dashboard.people import Person

ALICE = Person("alice")


def reviews(*rights: tuple[str, str, str]) -> tuple[AccessReviews, PeopleApi, Clock]:
    api, clock = PeopleApi(), Clock()
    api.person("alice", *rights)
    return AccessReviews(api.own, clock), api, clock


def test_a_right_names_what_the_api_server_needs() -> None:
    assert NODES_RIGHT.attributes == {"verb": "list", "group": "", "resource": "nodes"}
    assert patches("blue", "job-a").attributes["name"] == "job-a"
    assert lists("fluxjobs").attributes == {
        "verb": "list",
        "group": "jobs.converged-computing.org",
        "resource": "fluxjobs",
    }


async def test_answers_are_kept_for_seconds_only() -> None:
    access, api, clock = reviews(("list", "fluxjobs", "blue"))
    assert await access.may(ALICE, RIGHT)
    assert await access.may(ALICE, RIGHT)
    assert api.reviews("subjectaccessreviews") == 1
    api.rights.clear()
    clock.now += 20
    assert not await access.may(ALICE, RIGHT)


async def test_the_review_is_about_the_person_with_his_groups() -> None:
    access, api, _ = reviews()
    person = Person("alice", "u-1", ("team",), (("scopes", ("read",)),))
    await access.may(person, RIGHT)
    spec = api.asked[0][3]["spec"]
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == (
        "alice",
        "u-1",
        ["team"],
        {"scopes": ["read"]},
    )


async def test_no_answer_is_a_refusal_that_is_not_kept() -> None:
    access, api, _ = reviews(("list", "fluxjobs", "blue"))
    api.failing = True
    assert not await access.may(ALICE, RIGHT)
    api.failing = False
    assert await access.may(ALICE, RIGHT)


async def test_without_an_answer_nothing_is_known_and_no_namespace_is_asked_about() -> None:
    access, api, clock = reviews(("list", "fluxjobs", "n1"))
    api.failing = True
    namespaces = tuple(f"n{number}" for number in range(100))
    assert await access.visible(ALICE, namespaces) == Visible(unanswered=True)
    assert api.reviews("subjectaccessreviews") == 5
    api.failing = False
    clock.now += 4
    assert (await access.visible(ALICE, namespaces)).namespaces == frozenset({"n1"})


async def test_who_lists_everywhere_is_asked_about_no_namespace() -> None:
    access, api, _ = reviews(("list", "fluxjobs", ""), ("list", "nodes", ""))
    seen = await access.visible(ALICE, tuple(f"n{number}" for number in range(100)))
    assert seen == Visible(None, nodes=True)
    assert seen.shows("anything")
    assert api.reviews("subjectaccessreviews") == 5


async def test_others_see_the_namespaces_that_they_may_list() -> None:
    access, _, _ = reviews(("list", "fluxjobs", "blue"), ("list", "fluxqueues", ""))
    seen = await access.visible(ALICE, ("blue", "red"))
    assert seen.namespaces == frozenset({"blue"})
    assert (seen.shows("red"), seen.queues, seen.accounts, seen.nodes) == (False, True, False, False)


async def test_what_is_seen_is_kept_for_seconds_while_the_namespaces_are_the_same() -> None:
    access, _, clock = reviews(("list", "fluxjobs", "blue"))
    namespaces = ("blue",)
    seen = await access.visible(ALICE, namespaces)
    assert await access.visible(ALICE, namespaces) is seen
    assert await access.visible(ALICE, ("blue", "red")) is not seen
    clock.now += 4
    assert await access.visible(ALICE, namespaces) is not seen


async def test_a_person_is_asked_about_a_bounded_number_of_namespaces() -> None:
    access, api, _ = reviews()
    seen = await access.visible(ALICE, tuple(f"n{number}" for number in range(MOST_NAMESPACES + 50)))
    assert seen.incomplete
    assert api.reviews("subjectaccessreviews") == MOST_NAMESPACES + 5


async def test_the_namespace_that_somebody_looks_at_is_asked_about_however_many_there_are() -> None:
    access, api, _ = reviews(("list", "fluxjobs", "zoo"))
    namespaces = (*(f"n{number:03}" for number in range(MOST_NAMESPACES)), "zoo", "zoom")
    assert (await access.visible(ALICE, namespaces)).namespaces == frozenset()
    seen = await access.visible(ALICE, namespaces, "zoo")
    assert (seen.namespaces, seen.incomplete) == (frozenset({"zoo"}), True)
    assert not (await access.visible(ALICE, namespaces, "zoom")).shows("zoom")
    asked = api.reviews("subjectaccessreviews")
    await access.visible(ALICE, namespaces, "none")
    assert api.reviews("subjectaccessreviews") == asked


async def test_the_same_person_with_other_groups_is_somebody_else() -> None:
    access, api, _ = reviews()
    await access.may(Person("alice"), RIGHT)
    await access.may(Person("alice", groups=("admins",)), RIGHT)
    await access.may(Person("alice"), Right("patch", "g", "fluxjobs", "blue"))
    assert api.reviews("subjectaccessreviews") == 3
    assert EVERYTHING.shows("red")
