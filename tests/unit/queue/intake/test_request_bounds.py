"""Whatever quantities and counts an object names, reading it gives a workload that every later step can hold,
or a sentence.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import Builder, JobBuilder, make_job, make_pod
from support.queue_builders import a_job, a_pod, a_workload, around

from fluxqueue.api.bounds import MAX_POD_SIZES, max_pods
from fluxqueue.api.fluxjobs import Reason
from fluxqueue.api.jobs import Job
from fluxqueue.api.pods import Pod
from fluxqueue.api.storedjson import StoredJson
from fluxqueue.fluxion.match.jobspec import read_jobspec
from fluxqueue.fluxion.rpc.values import write_share
from fluxqueue.kube.decoding import decode
from fluxqueue.queue.intake.describe import describe_group, describe_job, describe_pod
from fluxqueue.queue.model.groups import POD_GROUP, GatheredGroup, GroupKey
from fluxqueue.queue.model.jobspecs import share_on, sizes_in, slots_in
from fluxqueue.queue.model.records import NewWorkload
from fluxqueue.queue.scheduling.policies.backlog import Backlog

LARGEST = 2**63 - 1


def held(builder: JobBuilder) -> JobBuilder:
    return builder.suspended().annotation("fluxqueue/suspended-by", "webhook")


def described(builder: JobBuilder) -> NewWorkload:
    found = describe_job(a_job(held(builder)), around())
    assert found is not None
    return found


def is_sound(found: NewWorkload) -> None:
    """A request that is made can be stored, ordered, sent and granted; one that is not says why."""
    assert found.pods <= 2**31 - 1
    assert found.duration_s is None or 0 < found.duration_s <= LARGEST
    assert len(found.message) < 1_100
    if found.reason is Reason.INVALID_REQUEST:
        assert found.message
        assert not found.jobspec
        return
    read_jobspec(found.jobspec)
    slots = {label: count for label, count, _ in slots_in(found.jobspec)}
    share = share_on("n1", slots, sizes_in(found.jobspec))
    assert max(share.amounts.values()) <= LARGEST
    write_share(share)
    Backlog(
        [a_workload(jobspec=found.jobspec, shape=found.shape, pods=found.pods, duration_s=found.duration_s)]
    )


quantities = st.one_of(
    st.builds(
        "{}{}".format,
        st.one_of(
            st.integers(-(10**24), 10**24), st.decimals(allow_nan=False, allow_infinity=False, places=9)
        ),
        st.sampled_from(
            [
                "",
                "n",
                "u",
                "m",
                "k",
                "M",
                "G",
                "T",
                "P",
                "E",
                "Ki",
                "Mi",
                "Gi",
                "Ti",
                "Pi",
                "Ei",
                "e3",
                "e-9",
                "E18",
                "e999",
                "e-999",
            ]
        ),
    ),
    st.sampled_from(["19P", "100Ei", "0", "-1", "1n", "", "lots", "9" * 400, "inf"]),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
)
resources = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/fpga", "pods"]
    ),
    quantities,
    max_size=4,
)
containers = st.lists(
    st.builds(
        lambda requests, limits, sidecar: {
            "name": "c",
            "resources": {"requests": requests, "limits": limits},
            **({"restartPolicy": "Always"} if sidecar else {}),
        },
        resources,
        resources,
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
pod_specs = st.fixed_dictionaries(
    {"containers": containers, "restartPolicy": st.just("Never")},
    optional={
        "initContainers": containers,
        "overhead": resources,
        "resources": st.fixed_dictionaries({"requests": resources, "limits": resources}),
        "activeDeadlineSeconds": st.integers(1, LARGEST),
    },
)
counts = st.one_of(st.integers(0, 2**31 - 1), st.integers(0, 4))


@given(
    spec=pod_specs,
    parallelism=counts,
    completions=st.none() | counts,
    indexed=st.booleans(),
    deadline=st.none() | st.integers(1, LARGEST),
)
def test_a_job_of_any_quantities_and_counts_is_read_into_what_every_number_can_hold(
    spec: dict[str, Any], parallelism: int, completions: int | None, indexed: bool, deadline: int | None
) -> None:
    builder = make_job().pods(parallelism, completions).with_("spec.template.spec", spec)
    if indexed:
        builder = builder.with_("spec.completionMode", "Indexed")
    if deadline is not None:
        builder = builder.with_("spec.activeDeadlineSeconds", deadline)
    is_sound(described(builder))


@given(spec=pod_specs)
def test_a_pod_of_any_quantities_is_read_into_what_every_number_can_hold(spec: dict[str, Any]) -> None:
    found = describe_pod(a_pod(make_pod().with_("spec", spec).gate("fluxqueue")), around())
    assert found is not None
    is_sound(found)


@pytest.mark.parametrize(
    ("builder", "field"),
    [
        pytest.param(make_job().cpu("19P"), "container 'main' requests 19P cpu", id="cpu"),
        pytest.param(make_job().memory("100Ei"), "container 'main' requests 100Ei memory", id="memory"),
        pytest.param(
            make_job().request("nvidia.com/gpu", "100000000000"),
            "requests 100000000000 nvidia.com/gpu",
            id="gpus",
        ),
        pytest.param(make_job().cpu("-1"), "requests cpu: '-1' is negative", id="negative"),
        pytest.param(
            make_job().with_("spec.template.spec.overhead", {"cpu": "19P"}),
            "overhead requests 19P cpu",
            id="overhead",
        ),
        pytest.param(
            make_job().with_("spec.template.spec.resources", {"requests": {"memory": "2Pi"}}),
            "the pod requests 2Pi memory",
            id="pod level",
        ),
        pytest.param(
            make_job().with_(
                "spec.template.spec.containers",
                [{"name": name, "resources": {"requests": {"cpu": "600k"}}} for name in "ab"],
            ),
            "more cpu in all",
            id="the sum of containers",
        ),
        pytest.param(
            make_job().pods(max_pods() + 1, 2**31 - 1),
            f"it wants {max_pods() + 1} pods at once",
            id="parallelism",
        ),
        pytest.param(
            make_job().with_("spec.template.spec.nodeSelector", {str(n): "x" * 60 for n in range(999)}),
            "nodeSelector",
            id="rules",
        ),
    ],
)
def test_what_is_beyond_bounds_is_refused_with_its_field(builder: JobBuilder, field: str) -> None:
    found = described(builder)
    assert found.reason is Reason.INVALID_REQUEST
    assert found.message.startswith("Job default/j: ")
    assert field in found.message
    is_sound(found)


def test_the_least_quantity_there_is_asks_for_a_whole_unit() -> None:
    found = described(make_job().cpu("1n").memory("1n"))
    assert sizes_in(found.jobspec)["pod"] == {"cpu": 1, "memory": 1, "pods": 1}


def test_a_group_of_too_many_sizes_is_refused_because_each_costs_the_matcher_time() -> None:
    pods = tuple(sized(f"p{number}", number + 1) for number in range(MAX_POD_SIZES + 1))
    found = describe_group(GroupKey("default", "g", POD_GROUP), GatheredGroup(pods, (), len(pods)), around())
    assert found.reason is Reason.INVALID_REQUEST
    assert f"{MAX_POD_SIZES + 1} different sizes" in found.message


def sized(name: str, cpus: int) -> Pod:
    builder: Builder = make_pod(name).cpu(str(cpus)).gate("fluxqueue")
    return a_pod(builder, uid=name)


def test_a_long_affinity_is_read_the_same_when_it_is_kept_as_text() -> None:
    names = [f"node-{number:04}" for number in range(600)]
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    document = make_job("x").suspended().annotation("fluxqueue/suspended-by", "webhook").uid("u")
    document = document.with_("spec.template.spec.affinity", {"nodeAffinity": required})
    plain, kept = (
        msgspec.convert(document.build(), Job),
        decode(msgspec.json.encode(document.build()), Job, "list"),
    )
    assert isinstance(kept.spec.template.spec.affinity, StoredJson)
    assert describe_job(kept, around()) == describe_job(plain, around())


def test_a_job_of_which_no_more_is_read_waits_with_a_sentence() -> None:
    spec = {
        "template": {"spec": {"containers": [{"name": "a"}], "tolerations": [{"key": "a"}] * 60_000}},
        "suspend": True,
    }
    meta = {
        "name": "j",
        "namespace": "default",
        "uid": "j",
        "annotations": {"fluxqueue/suspended-by": "webhook"},
    }
    found = describe_job(decode(json.dumps({"metadata": meta, "spec": spec}).encode(), Job, "get"), around())
    assert found is not None
    assert (found.reason, found.jobspec) == (Reason.INVALID_REQUEST, "")
    assert "tolerations, rules about nodes) comes to more than 49152 bytes: make it smaller" in found.message
