"""Which FluxJob belongs to which object if their names collide."""

import json
from typing import Any

from support.builders import make_job
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State, fluxjob_names


def a_fluxjob(name: str, job: Any, uid: str, owned: bool) -> str:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": uid}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid}
    meta = {"name": name, "ownerReferences": [owner] if owned else []}
    spec = {
        "objectRef": ref,
        "queue": "default",
        "priority": 7,
        "durationSeconds": 5,
        "pods": 3,
        "jobspec": "{}",
    }
    return json.dumps({"apiVersion": names.API_VERSION, "kind": "FluxJob", "metadata": meta, "spec": spec})


def made_by_the_queue(stage: Stage, manifest: str) -> None:
    """Create FluxJobs as the queue's user, because the admission policy accepts them from no other user."""
    condition = "{.spec.matchConditions[?(@.name=='not-ours')].expression}"
    expression = stage.kubectl(
        "get", "validatingadmissionpolicy", "fluxqueue-fluxjobs", "-o", f"jsonpath={condition}"
    ).stdout
    stage.kubectl("create", "-f", "-", "--as", expression.split("'")[1], stdin=manifest)


def manage(stage: Stage, managed: bool) -> None:
    stage.kubectl(
        "label", "namespace", stage.namespace, f"{names.MANAGED_LABEL}={str(managed).lower()}", "--overwrite"
    )


def of(stage: Stage, uid: str) -> list[FluxJob]:
    return [fluxjob for fluxjob in stage.fluxjobs() if fluxjob.spec.object_ref.uid == uid]


def test_a_foreign_fluxjob_is_not_written_and_one_of_an_older_version_is_kept(stage: Stage) -> None:
    manage(stage, False)
    stage.apply(
        make_job("meets").cpu("1").suspended().build(), make_job("former").cpu("1").suspended().build()
    )
    meets, former = stage.job("meets"), stage.job("former")
    new, longer, *_ = fluxjob_names("Job", "meets", meets.metadata.uid)
    *_, short = fluxjob_names("Job", "former", former.metadata.uid)
    made_by_the_queue(stage, a_fluxjob(new, meets, "uid-of-somebody-else", owned=False))
    made_by_the_queue(stage, a_fluxjob(short, former, former.metadata.uid, owned=True))
    (others,) = of(stage, "uid-of-somebody-else")

    manage(stage, True)
    (own,) = stage.until("a FluxJob stands beside it", lambda: of(stage, meets.metadata.uid))
    assert own.metadata.name == longer
    stage.until(
        "the former one tells",
        lambda: [fluxjob.status.reason for fluxjob in of(stage, former.metadata.uid)] == ["UserSuspended"],
    )

    stage.kubectl("patch", "job", "meets", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    stage.kubectl("patch", "job", "former", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    stage.until_state("meets", State.COMPLETED)
    stage.until_state("former", State.COMPLETED)
    assert [fluxjob.metadata.name for fluxjob in of(stage, former.metadata.uid)] == [short]
    assert of(stage, "uid-of-somebody-else") == [others]
    stage.kubectl("delete", "fluxjob", new)
