"""Every kind of work that is more than a Job or a pod: groups, successors, growing Jobs. Failure modes are those of docs/reliability.md."""

from __future__ import annotations

import json

from builders import PodBuilder, make_pod
from end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State
from fluxqueue.api.objects import Pod

RUN_SECONDS = "fluxqueue.local/run-seconds"


def member(name: str, group: str = "mpi", size: int = 3, seconds: str = "2") -> PodBuilder:
    pod = make_pod(name).cpu("2").annotation(RUN_SECONDS, seconds).with_("spec.restartPolicy", "Never")
    return pod.label(names.POD_GROUP_LABEL, group).annotation(names.POD_GROUP_SIZE_ANNOTATION, str(size))


def group_of(stage: Stage, name: str = "mpi") -> FluxJob | None:
    """The FluxJob of a pod group."""
    refs = [found for found in stage.fluxjobs() if (found.spec.object_ref.kind, found.spec.object_ref.name) == ("PodGroup", name)]
    return refs[0] if refs else None


def until_group(stage: Stage, *, state: str = "", reason: str = "", name: str = "mpi") -> FluxJob:
    def come() -> FluxJob | None:
        found = group_of(stage, name)
        held = found is not None and (not state or found.status.state == state) and (not reason or found.status.reason == reason)
        return found if held else None

    found = stage.until(f"the group {name} is {state}{reason}", come, said=lambda: [one.status for one in stage.fluxjobs()])
    assert found is not None
    return found


def nodes_of(stage: Stage) -> dict[str, str | None]:
    """Node of each pod, None while it has none."""
    return {pod.metadata.name: pod.spec.node_name for pod in stage.items("pods", Pod) if not pod.terminal}


def test_a_pod_group_waits_for_its_last_pod_and_starts_as_one(stage: Stage) -> None:
    stage.apply(member("launcher").cpu("1").build(), member("w0").cpu("8").build())
    waiting = until_group(stage, reason="WaitingForGroup")
    assert "2 of 3" in waiting.status.message
    assert [owner.kind for owner in waiting.metadata.owner_references or ()] == ["Pod"] * len(waiting.metadata.owner_references or ())
    assert stage.fluxion_jobs() == []
    stage.apply(member("w1").cpu("8").build())
    done = until_group(stage, state=State.COMPLETED)
    assert done.spec.pods == 3
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm04_a_pod_of_a_running_group_is_replaced_in_its_place(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", seconds="forever").cpu("8").build() for number in range(3)))
    until_group(stage, state=State.RUNNING)
    lost = nodes_of(stage)["p1"]
    stage.kubectl("delete", "pod", "p1")
    stage.apply(member("p1b", seconds="forever").cpu("8").build())
    stage.until("the newcomer stands where p1 stood", lambda: nodes_of(stage).get("p1b") == lost)
    assert len(stage.fluxjobs()) == 1
    stage.until_consistent()


def test_fm09_a_pod_too_many_gains_nothing_by_a_groups_name(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=2, seconds="forever").build() for number in range(2)))
    until_group(stage, state=State.RUNNING)
    stage.apply(member("stranger", size=2, seconds="forever").build())
    fluxjob = stage.until_reason("stranger", "InvalidRequest")
    assert "complete without it" in fluxjob.status.message
    assert nodes_of(stage)["stranger"] is None


def test_sizes_that_disagree_are_said_and_mended(stage: Stage) -> None:
    stage.apply(member("a", size=2).build(), member("b", size=3).build())
    assert "different sizes" in until_group(stage, reason="InvalidRequest").status.message
    stage.kubectl("annotate", "pod", "b", f"{names.POD_GROUP_SIZE_ANNOTATION}=2", "--overwrite")
    until_group(stage, state=State.COMPLETED)


def test_a_nonsense_size_is_refused_at_apply(stage: Stage) -> None:
    pod = member("a").annotation(names.POD_GROUP_SIZE_ANNOTATION, "three").namespace(stage.namespace).build()
    pod.pop("status")
    done = stage.kubectl("apply", "-f", "-", stdin=json.dumps(pod), check=False)
    assert done.returncode != 0
    assert "'three' is not the size of a group" in done.stderr


def test_a_queue_that_is_killed_while_a_group_starts_lets_all_of_it_go(stage: Stage) -> None:
    stage.apply_all(*(member(f"p{number}", size=12, seconds="forever").build() for number in range(12)))
    stage.kill("queue")
    stage.until_ready("queue")
    until_group(stage, state=State.RUNNING)
    stage.until_consistent()
