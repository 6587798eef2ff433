"""Replay of recorded cases, in process and over gRPC."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.fluxionrequests import cluster_jgf, make_jobspec

from fluxqueue.fluxion.commands.replay import vertices_of
from fluxqueue.fluxion.main import main
from fluxqueue.fluxion.rpc.server import RunningServer

NODE0 = [["/cluster0/node0/core0", 1, True], ["/cluster0/node0", 1, False], ["/cluster0", 1, False]]


def matched(jobid: int, vertices: list[Any], at: int = 0) -> dict[str, Any]:
    return {"ok": True, "errno": "OK", "jobid": jobid, "reserved": at > 0, "at": at, "vertices": vertices}


def match(expect: dict[str, Any], request: str = "allocate", jobspec: str = "one") -> dict[str, Any]:
    return {"op": "match", "request": request, "jobspec": jobspec, "expect": expect}


@pytest.fixture
def case() -> dict[str, Any]:
    """What the real library answers on one node of one core."""
    return {
        "id": "hand-test",
        "options": {"matcher_policy": "lonode"},
        "grpc_reachable": True,
        "graph": "graphs/one.json",
        "init": {"ok": True, "errno": "OK"},
        "jobspecs": {"one": json.loads(make_jobspec(core=1, duration=60)), "two": make_jobspec(2, core=1)},
        "commands": [
            match(matched(1, NODE0)),
            match({"ok": False, "errno": "EBUSY"}),
            match(matched(3, NODE0, at=60), "allocate_orelse_reserve"),
            {"op": "cancel", "jobid": 1, "expect": {"ok": True, "errno": "OK"}},
            match(matched(4, NODE0)),
            match({"ok": False, "errno": "EBUSY"}, jobspec="two"),
        ],
    }


@pytest.fixture
def folder(tmp_path: Path, case: dict[str, Any]) -> Path:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs/one.json").write_text(cluster_jgf(nodes=1, cores=1))
    write(tmp_path, case)
    return tmp_path


def write(folder: Path, case: dict[str, Any]) -> None:
    (folder / "cases-00.json").write_text(json.dumps({"format": 1, "cases": [case]}))


@pytest.mark.parametrize("how", [[], ["--grpc"]])
def test_answers_as_recorded_agree_at_every_level(
    folder: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(folder), *how]) == 0
    out = capsys.readouterr().out
    assert "1 cases against" in out
    for level in ("results", "vertex sets", "order and R"):
        line = next(line for line in out.splitlines() if line.startswith(f"  {level} "))
        assert "1 of 1" in line
        assert "100.00 %" in line


@pytest.mark.parametrize("how", [[], ["--grpc"]])
def test_a_difference_is_described_and_fails(
    folder: Path, case: dict[str, Any], how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    case["commands"][2]["expect"]["at"] = 61
    write(folder, case)
    assert main(["replay", str(folder), *how]) == 1
    out = capsys.readouterr().out
    assert (
        "hand-test (lonode): results: command 2 match allocate_orelse_reserve one: at 60, recorded 61" in out
    )


async def test_cases_are_replayed_against_another_service(
    folder: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"127.0.0.1:{server.port}"
    assert await asyncio.to_thread(main, ["replay", str(folder), "--target", target]) == 0
    assert f"against {target}" in capsys.readouterr().out


def test_cases_that_need_more_than_three_calls_are_left_out_over_grpc(
    folder: Path, case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    case["grpc_reachable"] = False
    write(folder, case)
    assert main(["replay", str(folder), "--grpc"]) == 1
    assert "0 cases against" in capsys.readouterr().out


def test_a_folder_without_cases_is_no_success(tmp_path: Path) -> None:
    assert main(["replay", str(tmp_path)]) == 1


def test_a_file_that_holds_no_cases_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cases-01.json").write_text("{}")
    assert main(["replay", str(folder)]) == 1
    assert "no folder of recorded cases: KeyError: 'cases'" in capsys.readouterr().err


def test_vertices_are_read_from_r_with_the_defaults_it_leaves_out() -> None:
    nodes = [
        {
            "id": "1",
            "metadata": {"type": "memory", "size": 4, "exclusive": True, "paths": {"containment": "/c/n/m"}},
        },
        {"id": "0", "metadata": {"type": "cluster", "paths": {"containment": "/c"}}},
    ]
    assert vertices_of(json.dumps({"graph": {"nodes": nodes, "edges": []}})) == (
        ("/c/n/m", 4, True),
        ("/c", 1, False),
    )
