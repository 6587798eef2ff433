"""The CRDs match the code."""

import re
import typing
from typing import Any

import msgspec
import pytest
from support.chart_rendering import Chart, Json, Rendered

from fluxqueue.api import miniclusters, names
from fluxqueue.api.fluxaccounts import (
    AccountGuarantee,
    AccountLimits,
    FluxAccountSpec,
    FluxAccountStatus,
    GuaranteedStatus,
)
from fluxqueue.api.fluxjobs import FluxJobSpec, FluxJobStatus, ObjectRef, Outcome, Reason, State
from fluxqueue.api.fluxqueues import (
    AtLimit,
    EnforceDuration,
    Flavor,
    FluxQueueSpec,
    FluxQueueStatus,
    Limits,
    Members,
    NamespaceLimits,
    Policy,
    QueueLimits,
    QueueState,
    WaitingBudget,
    WorkloadLimits,
)
from fluxqueue.api.fluxreservations import (
    AtStart,
    FluxReservationSpec,
    FluxReservationStatus,
    ReservationState,
    ReservedNodes,
)
from fluxqueue.minicluster.bounds import MOST_BROKERS

MINICLUSTERS = {"enabled": True, "namespaces": ["*"]}


def _version(rendered: Rendered, plural: str) -> Json:
    crd = rendered.one("CustomResourceDefinition", f"{plural}.{names.GROUP}")
    (version,) = crd["spec"]["versions"]
    return typing.cast(Json, version)


def _schema(rendered: Rendered, plural: str, part: str) -> Json:
    return typing.cast(Json, _version(rendered, plural)["schema"]["openAPIV3Schema"]["properties"][part])


def _columns(rendered: Rendered, plural: str, priority: int) -> list[str]:
    return [
        c["name"].upper()
        for c in _version(rendered, plural)["additionalPrinterColumns"]
        if c.get("priority", 0) == priority
    ]


def test_names_scope_and_short_names_are_those_of_the_code(default: Rendered) -> None:
    jobs = default.one("CustomResourceDefinition", f"{names.FLUXJOBS}.{names.GROUP}")["spec"]
    queues = default.one("CustomResourceDefinition", f"{names.FLUXQUEUES}.{names.GROUP}")["spec"]
    assert (jobs["scope"], jobs["names"]["shortNames"]) == ("Namespaced", ["fj"])
    assert (queues["scope"], queues["names"]["shortNames"]) == ("Cluster", ["fq"])
    accounts = default.one("CustomResourceDefinition", f"{names.FLUXACCOUNTS}.{names.GROUP}")["spec"]
    assert (accounts["scope"], accounts["names"]["shortNames"]) == ("Cluster", ["fa"])
    reservations = default.one("CustomResourceDefinition", f"{names.FLUXRESERVATIONS}.{names.GROUP}")["spec"]
    assert (reservations["scope"], reservations["names"]["shortNames"]) == ("Cluster", ["fr"])
    assert {crd["versions"][0]["name"] for crd in (jobs, queues, accounts, reservations)} == {names.VERSION}


@pytest.mark.parametrize(("field", "values"), [("state", State), ("reason", Reason), ("outcome", Outcome)])
def test_closed_sets_match_the_code(
    default: Rendered, field: str, values: type[State | Reason | Outcome]
) -> None:
    assert _schema(default, names.FLUXJOBS, "status")["properties"][field]["enum"] == [
        member.value for member in values
    ]


@pytest.mark.parametrize(("part", "struct"), [("spec", FluxJobSpec), ("status", FluxJobStatus)])
def test_every_field_of_a_fluxjob_is_in_the_schema_and_no_other(
    default: Rendered, part: str, struct: type[msgspec.Struct]
) -> None:
    written_only = {"conditions"} if part == "status" else set()
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert set(_schema(default, names.FLUXJOBS, part)["properties"]) == fields | written_only


@pytest.mark.parametrize(("part", "struct"), [("spec", FluxQueueSpec), ("status", FluxQueueStatus)])
def test_every_field_of_a_fluxqueue_is_in_the_schema_and_no_other(
    default: Rendered, part: str, struct: type[msgspec.Struct]
) -> None:
    assert set(_schema(default, names.FLUXQUEUES, part)["properties"]) == {
        field.encode_name for field in msgspec.structs.fields(struct)
    }


@pytest.mark.parametrize(("part", "struct"), [("spec", FluxAccountSpec), ("status", FluxAccountStatus)])
def test_every_field_of_a_fluxaccount_is_in_the_schema_and_no_other(
    default: Rendered, part: str, struct: type[msgspec.Struct]
) -> None:
    assert set(_schema(default, names.FLUXACCOUNTS, part)["properties"]) == {
        field.encode_name for field in msgspec.structs.fields(struct)
    }


def test_the_limits_of_an_account_are_those_of_the_code(default: Rendered) -> None:
    limits = _schema(default, names.FLUXACCOUNTS, "spec")["properties"]["limits"]["properties"]
    assert set(limits) == {field.encode_name for field in msgspec.structs.fields(AccountLimits)}


def test_a_guarantee_of_an_account_and_its_status_are_those_of_the_code(default: Rendered) -> None:
    spec = _schema(default, names.FLUXACCOUNTS, "spec")["properties"]["guaranteed"]["properties"]
    status = _schema(default, names.FLUXACCOUNTS, "status")["properties"]["guaranteed"]["items"]["properties"]
    assert set(spec) == {field.encode_name for field in msgspec.structs.fields(AccountGuarantee)}
    assert set(status) == {field.encode_name for field in msgspec.structs.fields(GuaranteedStatus)}


@pytest.mark.parametrize(
    ("part", "struct"), [("spec", FluxReservationSpec), ("status", FluxReservationStatus)]
)
def test_every_field_of_a_fluxreservation_is_in_the_schema(
    default: Rendered, part: str, struct: type[msgspec.Struct]
) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert set(_schema(default, names.FLUXRESERVATIONS, part)["properties"]) == fields


def test_the_closed_sets_of_a_reservation_and_its_nodes_are_those_of_the_code(default: Rendered) -> None:
    spec = _schema(default, names.FLUXRESERVATIONS, "spec")["properties"]
    assert spec["atStart"]["enum"] == [*AtStart]
    assert (spec["atStart"]["default"], spec["timeZone"]["default"]) == (
        FluxReservationSpec().at_start,
        FluxReservationSpec().time_zone,
    )
    assert set(spec["nodes"]["properties"]) == {
        field.encode_name for field in msgspec.structs.fields(ReservedNodes)
    }
    assert _schema(default, names.FLUXRESERVATIONS, "status")["properties"]["state"]["enum"] == [
        *ReservationState
    ]


@pytest.mark.parametrize(("field", "values"), [("policy", Policy), ("state", QueueState)])
def test_a_queue_s_closed_sets_and_their_defaults_are_those_of_the_code(
    default: Rendered, field: str, values: type[Any]
) -> None:
    schema = _schema(default, names.FLUXQUEUES, "spec")["properties"][field]
    assert schema["enum"] == [member.value for member in values]
    assert schema["default"] == getattr(FluxQueueSpec(), field)


def test_what_a_queue_does_at_a_limit_is_that_of_the_code(default: Rendered) -> None:
    assert _schema(default, names.FLUXQUEUES, "spec")["properties"]["atLimit"]["enum"] == [*AtLimit]


@pytest.mark.parametrize(
    ("path", "struct"),
    [
        ("limits", QueueLimits),
        ("limits.perNamespace", NamespaceLimits),
        ("limits.perNamespace.waiting", WaitingBudget),
        ("limits.perUser", Limits),
        ("limits.perWorkload", WorkloadLimits),
        ("namespaces", Members),
        ("flavors", Flavor),
    ],
)
def test_the_parts_of_a_queue_are_those_of_the_code(
    default: Rendered, path: str, struct: type[msgspec.Struct]
) -> None:
    schema = _schema(default, names.FLUXQUEUES, "spec")
    for member in path.split("."):
        schema = schema["properties"][member]
    schema = schema.get("items", schema)
    assert set(schema["properties"]) == {field.encode_name for field in msgspec.structs.fields(struct)}


def test_the_object_reference_is_whole_and_bounded(default: Rendered) -> None:
    reference = _schema(default, names.FLUXJOBS, "spec")["properties"]["objectRef"]
    assert (
        set(reference["properties"])
        == set(reference["required"])
        == {f.encode_name for f in msgspec.structs.fields(ObjectRef)}
    )
    assert all("maxLength" in field for field in reference["properties"].values()), (
        "an unbounded field makes the rule too dear"
    )


def test_what_the_code_leaves_out_as_its_zero_value_the_schema_fills_in(default: Rendered) -> None:
    properties = _schema(default, names.FLUXJOBS, "spec")["properties"]
    zero = msgspec.to_builtins(FluxJobSpec())
    assert zero == {}, "the struct leaves out what has its default"
    for field, default_value in (
        ("queue", FluxJobSpec().queue),
        ("priority", 0),
        ("hold", False),
        ("cancel", False),
    ):
        assert properties[field]["default"] == default_value


def test_a_fluxjob_shows_state_queue_nodes_reason_eta_and_age(default: Rendered) -> None:
    assert _columns(default, names.FLUXJOBS, 0) == ["STATE", "QUEUE", "NODES", "REASON", "ETA", "AGE"]
    assert set(_columns(default, names.FLUXJOBS, 1)) == {"POSITION", "PODS", "JOBID", "MESSAGE"}


def test_an_eta_is_shown_as_a_time_since_kubectl_prints_future_dates_as_invalid(default: Rendered) -> None:
    (eta,) = [c for c in _version(default, names.FLUXJOBS)["additionalPrinterColumns"] if c["name"] == "Eta"]
    assert eta["type"] == "string"


@pytest.mark.parametrize(
    "plural", [names.FLUXJOBS, names.FLUXQUEUES, names.FLUXACCOUNTS, names.FLUXRESERVATIONS]
)
def test_a_fluxjob_is_created_with_its_status_and_every_column_points_at_a_field(
    default: Rendered, plural: str
) -> None:
    version = _version(default, plural)
    assert version.get("subresources") == (None if plural == names.FLUXJOBS else {"status": {}})
    for column in version["additionalPrinterColumns"]:
        assert re.fullmatch(r"(\.\w+){2,3}", column["jsonPath"])
        part, *fields = column["jsonPath"].removeprefix(".").split(".")
        schema = version["schema"]["openAPIV3Schema"]["properties"][part]
        for field in fields if part != "metadata" else ():
            assert field in schema["properties"]
            schema = schema["properties"][field]


def test_the_assumed_duration_of_a_queue_is_the_code_s(default: Rendered) -> None:
    assert (
        _schema(default, names.FLUXQUEUES, "spec")["properties"]["defaultDurationSeconds"]["default"]
        == names.DEFAULT_DURATION_S
    )


def test_crds_survive_an_uninstall_unless_configured_otherwise(chart: Chart, default: Rendered) -> None:
    kept = {"helm.sh/resource-policy": "keep"}
    assert all(crd["metadata"]["annotations"] == kept for crd in default.all("CustomResourceDefinition"))
    assert all(
        "annotations" not in crd["metadata"]
        for crd in chart.render({"crds": {"keep": False}}).all("CustomResourceDefinition")
    )
    assert chart.render({"crds": {"install": False}}).all("CustomResourceDefinition") == []


def test_the_default_queue_comes_after_its_kind_and_only_once(default: Rendered) -> None:
    queue = default.one("FluxQueue", names.DEFAULT_QUEUE)
    assert queue["metadata"]["annotations"]["helm.sh/hook"] == "post-install"
    assert queue["spec"]["policy"] == "easy"


def test_in_the_default_queue_nobody_goes_ahead_and_a_stated_duration_counts(default: Rendered) -> None:
    spec = default.one("FluxQueue", names.DEFAULT_QUEUE)["spec"]
    assert (spec["maxPriority"], spec["enforceDuration"]) == (0, {"enabled": True, "onlyStated": True})
    assert set(spec["enforceDuration"]) <= _fields(EnforceDuration)


def _fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


@pytest.fixture
def minicluster(chart: Chart) -> Json:
    crd = chart.render({"miniclusters": MINICLUSTERS}).one(
        "CustomResourceDefinition", f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}"
    )
    (version,) = crd["spec"]["versions"]
    assert version["name"] == names.MINICLUSTER_VERSION
    assert crd["metadata"]["labels"][names.OPERATOR_LABEL] == names.OPERATOR
    return typing.cast(Json, version)


_MINICLUSTER_PARTS: list[tuple[str, type[msgspec.Struct]]] = [
    ("spec", miniclusters.MiniClusterSpec),
    ("status", miniclusters.MiniClusterStatus),
    ("spec.containers.[]", miniclusters.MiniClusterContainer),
    ("spec.services.[]", miniclusters.MiniClusterContainer),
    ("spec.containers.[].volumes.*", miniclusters.ContainerVolume),
    ("spec.containers.[].secrets.*", miniclusters.SecretKey),
    ("spec.containers.[].commands", miniclusters.Commands),
    ("spec.containers.[].lifeCycle", miniclusters.LifeCycle),
    ("spec.network", miniclusters.Network),
    ("spec.logging", miniclusters.Logging),
    ("spec.archive", miniclusters.MiniClusterArchive),
    ("spec.flux", miniclusters.FluxSpec),
    ("spec.flux.container", miniclusters.FluxContainer),
    ("spec.flux.scheduler", miniclusters.FluxScheduler),
    ("spec.flux.bursting", miniclusters.Bursting),
    ("spec.flux.bursting.leadBroker", miniclusters.LeadBroker),
    ("spec.flux.bursting.clusters.[]", miniclusters.BurstedCluster),
    ("spec.pod", miniclusters.MiniClusterPod),
    ("spec.pod.tolerations.[]", miniclusters.PodToleration),
    ("spec.restful", miniclusters.RestService),
    ("spec.state", miniclusters.SavedState),
    ("status.missing.[]", miniclusters.MissingBroker),
]


@pytest.mark.parametrize(("path", "struct"), _MINICLUSTER_PARTS, ids=[path for path, _ in _MINICLUSTER_PARTS])
def test_every_field_of_a_minicluster_is_in_the_schema_and_no_other(
    minicluster: Json, path: str, struct: type[msgspec.Struct]
) -> None:
    schema = minicluster["schema"]["openAPIV3Schema"]
    for step in path.split("."):
        schema = {"[]": lambda s: s["items"], "*": lambda s: s["additionalProperties"]}.get(
            step, lambda s, k=step: s["properties"][k]
        )(schema)
    assert set(schema["properties"]) == _fields(struct)


def test_what_the_minicluster_schema_fills_in_is_what_the_code_assumes(minicluster: Json) -> None:
    properties = minicluster["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec = miniclusters.MiniClusterSpec()
    filled = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    assert filled == {"size": spec.size, "tasks": spec.tasks, "deadlineSeconds": spec.deadline_seconds}


def test_states_of_miniclusters_and_their_scale_are_those_of_the_code(minicluster: Json) -> None:
    status = minicluster["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert status["state"]["enum"] == ["", *miniclusters.MiniClusterState]
    scale = minicluster["subresources"]["scale"]
    assert scale == {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    columns = [c["name"].upper() for c in minicluster["additionalPrinterColumns"] if not c.get("priority")]
    assert columns == ["STATE", "SIZE", "BROKERS", "QUEUE", "NODES", "AGE"]


def test_without_miniclusters_neither_their_crd_nor_their_rights_are_there(chart: Chart) -> None:
    rendered = chart.render()
    assert f"{names.MINICLUSTERS}.{names.MINICLUSTER_GROUP}" not in {
        each["metadata"]["name"] for each in rendered.all("CustomResourceDefinition")
    }
    roles = [*rendered.all("ClusterRole"), *rendered.all("Role")]
    groups = {group for role in roles for rule in role["rules"] for group in rule.get("apiGroups", ())}
    assert names.MINICLUSTER_GROUP not in groups


def _unbounded(schema: Json, path: str) -> list[str]:
    """Return every text, number, list and map of a schema without a limit."""
    kind = schema.get("type")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    bounded = {
        "string": schema.keys() & {"maxLength", "enum"} or schema.get("format") == "date-time",
        "integer": {"minimum", "maximum"} <= schema.keys(),
        "array": "maxItems" in schema,
        "object": not free or "maxProperties" in schema,
    }
    found = [] if bounded.get(str(kind), True) else [path]
    inner = {
        **schema.get("properties", {}),
        "*": schema.get("items"),
        "{}": schema.get("additionalProperties"),
    }
    return found + [
        each
        for name, part in inner.items()
        if isinstance(part, dict)
        for each in _unbounded(part, f"{path}.{name}")
    ]


def test_every_field_of_a_minicluster_is_bounded(minicluster: Json) -> None:
    schema = minicluster["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert _unbounded(schema, "spec") == []
    for field in ("size", "maxSize", "minSize"):
        assert schema["properties"][field]["maximum"] == MOST_BROKERS
