"""Replay of recorded cases, which checks that an engine answers as flux-sched did.

A case is a graph, some jobspecs and a list of commands with the answers of flux-sched. A replay compares at
four levels: results (ok, jobid, reserved, at), vertices as sets, their order and the text of R, and calls
that only the C interface has (status, satisfiability, info). A `Target` answers the commands: the engine in
this process, or a server behind gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import FluxionError, InitError, MatchError, UnknownJob, UnknownPath
from fluxqueue.fluxion.match.writers import VertexRow

__all__ = ["LEVELS", "Agreement", "Answer", "EngineTarget", "Target", "load_cases", "replay"]

LEVELS = ("results", "vertex sets", "order and R", "status, satisfiability, info")
_BOOKING = ("allocate", "allocate_orelse_reserve")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a target to one command; None where the target does not know."""

    ok: bool
    errno: str | None = None
    jobid: int | None = None
    reserved: bool | None = None
    at: int | None = None
    vertices: tuple[VertexRow, ...] | None = None
    allocation: str | None = None
    mode: str | None = None


class Target(Protocol):
    """A service or engine that answers commands.
    ``everything`` is false if it has only Init, Match and Cancel.
    """

    everything: bool

    def init(self, policy: str, jgf: str, prune_filters: str | None) -> Answer:
        """Load a graph; an empty policy means the default."""
        ...

    def match(self, jobspec: str, request: str) -> Answer:
        """Match; ``request`` is one of flux-sched's names."""
        ...

    def cancel(self, jobid: int, noent_ok: bool) -> Answer:
        """End a job."""
        ...

    def info(self, jobid: int) -> Answer:
        """Return the state of a job."""
        ...

    def set_status(self, path: str, up: bool) -> Answer:
        """Mark a vertex up or down."""
        ...


class EngineTarget:
    """The engine in this process."""

    everything = True

    def __init__(self) -> None:
        self._engine = Engine()

    def init(self, policy: str, jgf: str, prune_filters: str | None) -> Answer:
        """Load a graph."""
        try:
            self._engine.init(policy, jgf=jgf, prune_filters=prune_filters)
        except InitError:
            return Answer(False)
        return Answer(True, "OK")

    def match(self, jobspec: str, request: str) -> Answer:
        """Match."""
        try:
            match = self._engine.match(jobspec, MatchRequestKind(request))
        except MatchError as error:
            return Answer(False, error.errno.value)
        return Answer(
            True,
            "OK",
            match.jobid,
            match.reserved,
            match.at,
            match.vertices,
            match.allocation() if match.vertices else "",
        )

    def cancel(self, jobid: int, noent_ok: bool) -> Answer:
        """End a job."""
        try:
            self._engine.cancel(jobid, noent_ok)
        except UnknownJob:
            return Answer(False, "ENOENT")
        return Answer(True, "OK")

    def info(self, jobid: int) -> Answer:
        """Return the state of a job."""
        try:
            info = self._engine.info(jobid)
        except UnknownJob:
            return Answer(False, "ENOENT")
        return Answer(True, "OK", reserved=info.reserved, at=info.at, mode=info.mode)

    def set_status(self, path: str, up: bool) -> Answer:
        """Mark a vertex up or down."""
        try:
            self._engine.set_status(path, up)
        except UnknownPath:
            return Answer(False, "EINVAL")
        return Answer(True, "OK")


@dataclass(slots=True)
class Agreement:
    """Counts of a replay.

    Attributes
    ----------
    agreed, compared
        Cases by level: a case agrees at a level if all its commands do.
    differences
        At most ``limit`` sentences, in order.
    """

    limit: int = 20
    cases: int = 0
    agreed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0))
    differences: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if everything that was compared agreed."""
        return self.agreed == self.compared


def load_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a folder in order of file names, each with its graph's text as ``graph_text``."""
    for file in sorted(folder.glob("*.json")):
        for case in orjson.loads(file.read_bytes())["cases"]:
            if "graph_text" not in case:
                case["graph_text"] = (folder / case["graph"]).read_text()
            yield case


def replay(cases: Iterable[Mapping[str, Any]], target: Target, *, limit: int = 20) -> Agreement:
    """Replay cases against a target.

    Parameters
    ----------
    cases
        From `load_cases`.
    target
        If it has not all calls, only cases with ``grpc_reachable`` are replayed.
    limit
        Number of differences to describe.

    Returns
    -------
    Agreement
        Counts by level, and the first differences.
    """
    agreement = Agreement(limit)
    for case in cases:
        if target.everything or case["grpc_reachable"]:
            agreement.cases += 1
            _replay_case(case, target, agreement)
    return agreement


def _replay_case(case: Mapping[str, Any], target: Target, agreement: Agreement) -> None:
    levels: dict[str, str | None] = {}

    def compare(level: str, same: bool, what: str) -> None:
        if levels.setdefault(level, None) is None and not same:
            levels[level] = what

    options = case["options"]
    loaded = target.init(options.get("matcher_policy", ""), case["graph_text"], options.get("prune_filters"))
    compare("results", loaded.ok == case["init"]["ok"], f"init: ok {loaded.ok}")
    if loaded.ok and case["init"]["ok"]:
        for number, command in enumerate(case["commands"]):
            try:
                _replay_command(case, number, command, target, compare)
            except (
                FluxionError,
                ArithmeticError,
                LookupError,
                TypeError,
                ValueError,
                RecursionError,
            ) as error:
                compare("results", False, f"command {number}: {type(error).__name__}: {error}")
                break
            if any(levels.values()):
                break
    for level, difference in levels.items():
        agreement.compared[level] += 1
        if difference is None:
            agreement.agreed[level] += 1
        elif len(agreement.differences) < agreement.limit:
            agreement.differences.append(
                f"{case['id']} ({options.get('matcher_policy', 'first')}): {level}: {difference}"
            )


def _replay_command(
    case: Mapping[str, Any], number: int, command: Mapping[str, Any], target: Target, compare: Any
) -> None:
    expect = command["expect"]
    where = f"command {number} {command['op']}"
    if command["op"] == "match":
        spec = case["jobspecs"][command["jobspec"]]
        text = spec if isinstance(spec, str) else orjson.dumps(spec).decode()
        request = command["request"]
        got = target.match(text, request)
        level = "results" if request in _BOOKING else LEVELS[3]
        where = f"{where} {request} {command['jobspec']}"
        compare(
            level,
            got.ok == expect["ok"],
            f"{where}: ok {got.ok} ({got.errno}), recorded {expect['ok']} ({expect['errno']})",
        )
        if not got.ok or not expect["ok"]:
            if got.ok == expect["ok"] and got.errno is not None and expect["errno"] not in ("ENOENT", "NONE"):
                compare(
                    LEVELS[3],
                    got.errno == expect["errno"],
                    f"{where}: errno {got.errno}, recorded {expect['errno']}",
                )
            return
        for key, value in (("jobid", got.jobid), ("reserved", got.reserved), ("at", got.at)):
            if key in expect and value is not None:
                compare(level, value == expect[key], f"{where}: {key} {value}, recorded {expect[key]}")
        if "vertices" in expect and got.vertices is not None:
            _compare_vertices(where, expect, got, compare)
        return
    if command["op"] == "cancel":
        got = target.cancel(command["jobid"], command.get("noent_ok", True))
        compare("results", got.ok == expect["ok"], f"{where} {command['jobid']}: ok {got.ok}")
    elif command["op"] == "info":
        got = target.info(command["jobid"])
        compare(LEVELS[3], got.ok == expect["ok"], f"{where} {command['jobid']}: ok {got.ok}")
        for key, answer in (("mode", got.mode), ("reserved", got.reserved), ("at", got.at)):
            if key in expect:
                compare(
                    LEVELS[3],
                    answer == expect[key],
                    f"{where} {command['jobid']}: {key} {answer}, recorded {expect[key]}",
                )
    else:
        got = target.set_status(command["path"], command["status"] == "up")
        compare(LEVELS[3], got.ok == expect["ok"], f"{where} {command['path']}: ok {got.ok}")


def _compare_vertices(where: str, expect: Mapping[str, Any], got: Answer, compare: Any) -> None:
    recorded = [tuple(row) for row in expect["vertices"]]
    vertices = list(got.vertices or ())
    missing, extra = sorted(set(recorded) - set(vertices)), sorted(set(vertices) - set(recorded))
    compare(
        "vertex sets",
        not missing and not extra and len(recorded) == len(vertices),
        f"{where}: missing {missing[:4]}, not recorded {extra[:4]} ({len(vertices)} against {len(recorded)})",
    )
    compare("order and R", vertices == recorded, f"{where}: another order")
    if "R" in expect and got.allocation is not None:
        compare("order and R", orjson.loads(got.allocation) == expect["R"], f"{where}: R differs")
