"""The generated code is what the .proto says, and the .proto is what the Go service says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fluxqueue.proto.v1 import fluxion_pb2 as pb

ROOT = Path(__file__).parents[3] / "proto"
GENERATED = ("fluxion_pb2.py", "fluxion_pb2.pyi")
SERVICE = pb.DESCRIPTOR.services_by_name["FluxionService"]

# Message -> field -> (number, type), from the Go service's fluxion.proto.
STRING, INT64, INT32, BOOL, FLOAT, ENUM = 9, 3, 5, 8, 2, 14
GO_SERVICE = {
    "InitRequest": {"policy": (1, STRING), "jgf": (2, STRING)},
    "InitResponse": {"status": (1, ENUM)},
    "MatchRequest": {"jobspec": (1, STRING), "request": (2, STRING), "reservation": (3, BOOL)},
    "MatchResponse": {
        "allocation": (1, STRING),
        "jobid": (2, INT64),
        "reserved": (3, BOOL),
        "at": (4, INT64),
        "overhead": (5, FLOAT),
        "status": (6, ENUM),
    },
    "CancelRequest": {"jobID": (2, INT64)},
    "CancelResponse": {"jobID": (1, INT64), "error": (2, INT32), "status": (3, ENUM)},
}


def test_generating_once_more_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "generate.py"), str(tmp_path)], check=True, timeout=60)
    for name in GENERATED:
        fresh = (tmp_path / "fluxqueue/proto/v1" / name).read_bytes()
        assert fresh == (ROOT / "v1" / name).read_bytes(), (
            f"{name} is not what the .proto says: run make proto"
        )


@pytest.mark.parametrize("message", GO_SERVICE)
def test_fields_of_the_go_service_keep_their_names_numbers_and_types(message: str) -> None:
    fields = pb.DESCRIPTOR.message_types_by_name[message].fields_by_name
    assert {name: (fields[name].number, fields[name].type) for name in GO_SERVICE[message]} == GO_SERVICE[
        message
    ]


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("InitResponse", {"INIT_SUCCESS": 0, "INIT_ERROR": 1, "INIT_DENIED": 2}),
        ("MatchResponse", {"MATCH_SUCCESS": 0, "MATCH_ERROR": 1, "MATCH_DENIED": 2}),
        (
            "CancelResponse",
            {"CANCEL_SUCCESS": 0, "CANCEL_REQUEST_ERROR": 1, "CANCEL_ERROR": 2, "CANCEL_DENIED": 3},
        ),
    ],
)
def test_success_is_0_as_in_the_go_service(message: str, values: dict[str, int]) -> None:
    results = pb.DESCRIPTOR.message_types_by_name[message].enum_types_by_name["ResultType"]
    assert {value.name: value.number for value in results.values} == values


@pytest.mark.parametrize("method", ["Init", "Match", "Cancel"])
def test_calls_of_the_go_service_keep_their_paths(method: str) -> None:
    call = SERVICE.methods_by_name[method]
    assert f"/{SERVICE.full_name}/{call.name}" == f"/fluxion.FluxionService/{method}"
    assert (call.input_type.name, call.output_type.name) == (f"{method}Request", f"{method}Response")


def test_a_compatible_request_has_the_bytes_a_go_client_sends() -> None:
    assert pb.CancelRequest(jobID=7).SerializeToString() == b"\x10\x07"
    assert pb.MatchRequest(jobspec="{}", reservation=True).SerializeToString() == b"\x0a\x02{}\x18\x01"
    assert pb.InitRequest(policy="lonode", jgf="{}").SerializeToString() == b"\x0a\x06lonode\x12\x02{}"


def test_every_new_request_carries_a_call() -> None:
    old = {"InitRequest", "MatchRequest", "CancelRequest"}
    for method in SERVICE.methods:
        if method.input_type.name not in old:
            field = method.input_type.fields_by_name["call"]
            assert field.message_type, method.name
            assert (field.number, field.message_type.name) == (1, "Call"), method.name


def test_the_generator_says_so_when_a_proto_cannot_be_read(tmp_path: Path) -> None:
    shutil.copy(ROOT / "generate.py", tmp_path)
    (tmp_path / "broken.proto").write_text("message {")
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "generate.py")],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert ended.returncode != 0
    assert "broken.proto:1" in ended.stderr
