#!/usr/bin/env python3
"""A stand-in for `flux` that checks its input as strictly as the real one, and whose jobs end as the test
decides.

Copied as ``bin/flux`` into the view of a test's pods. Brokers check their configuration, certificate and
directories as flux-core does, find their rank by host name, and communicate over the port of the
configuration: on the loopback address, or with the host in FLUX_STANDIN_LEADER. A follower with another
certificate waits without an answer. Jobs are run where they are submitted. The file in FLUX_STANDIN_SCRIPT
sets what a broker does instead; every call is written to FLUX_STANDIN_LOG.

Shutdown is flux-core's: SIGTERM and ``flux shutdown`` end the initial program by SIGHUP, and what it then
returns becomes 1. A signal in the state ``finalize`` stops the shutdown halfway. A broker stays in that state
while the file ``<log>.hold-<rank>`` exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

BOOTSTRAP_KEYS = {"curve_cert", "default_port", "default_bind", "default_connect", "hosts", "enable_ipv6"}
HOST_KEYS = {"host", "bind", "connect", "parent"}
SUBMIT_OPTIONS = ("--quiet", "--watch", "-vvv", "--exclusive", "--flags=waitable")
SUBMIT_VALUES = ("--output=", "--error=", "-o", "--cwd=", "--env=")
WAIT_S = 60.0
LEADER = os.environ.get("FLUX_STANDIN_LEADER", "127.0.0.1")


def main() -> int:
    words = sys.argv[1:]
    _log(
        {
            "argv": words,
            "env": {
                key: os.environ.get(key, "")
                for key in ("FLUX_URI", "FLUX_SHELL_RC_PATH", "PYTHONPATH", "HOME")
            },
        }
    )
    command, *rest = words
    if command in ("start", "broker"):
        return Broker(rest, leads_program=command == "start").run()
    if command in ("submit", "run"):
        return submit(rest)
    if command == "job":
        return job(rest)
    if command == "resource":
        return resource(rest)
    if command == "jobs" and rest[:2] == ["--no-header", "--filter=running"]:
        print(_busy(rest[2].removeprefix("--include=")), end="")
        return 0
    if command == "jobs":
        print("JOBID", *sorted(path.name for path in _jobs().iterdir()))
        return 0
    if command == "ping":
        return ping(rest)
    if command == "uptime":
        return uptime(rest)
    if command == "shutdown":
        return shutdown(rest)
    if command == "exec":
        return execute(rest)
    return _refuse(f"{command} is not a flux command")


class Broker:
    def __init__(self, words: list[str], *, leads_program: bool) -> None:
        self.attributes: dict[str, str] = {}
        self.program: list[str] = []
        self.config_path = ""
        self.wrap = ""
        for place, word in enumerate(words):
            if word.startswith("-S"):
                name, _, value = word[2:].partition("=")
                self.attributes[name] = value
            elif word.startswith("--config-path="):
                self.config_path = word.partition("=")[2]
            elif word.startswith("--wrap=") and leads_program:
                self.wrap = word
            elif word.startswith("-"):
                _fail(f"unknown option {word}")
            else:
                self.program = words[place:]
                break
        self.ending = False
        self.child: subprocess.Popen[bytes] | None = None
        self.followers: list[Follower] = []

    def run(self) -> int:
        config = self._configuration()
        hosts = _hostlist(config["bootstrap"]["hosts"])
        name = os.environ["HOSTNAME"]
        if name not in hosts:
            _fail(f"Config file error [bootstrap]: {name} not found in hosts")
        self.rank, self.size = hosts.index(name), len(hosts)
        self.key = _certificate(Path(config["bootstrap"]["curve_cert"]))
        self.port = config["bootstrap"]["default_port"]
        for attribute in ("rundir", "statedir"):
            _owned(Path(self.attributes[attribute]))
        outcome = _outcome(self.rank)
        if "exit" in outcome:
            time.sleep(outcome.get("after", 0))
            return int(outcome["exit"])
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._stop)
        self._enter("join")
        local = self._listen_locally()
        try:
            return self._lead(outcome) if self.rank == 0 else self._follow()
        finally:
            local.close()
            Path(self.socket_path).unlink(missing_ok=True)

    def _configuration(self) -> dict:  # type: ignore[type-arg]  # a test program without a schema
        merged: dict = {}  # type: ignore[type-arg]  # as above
        for path in sorted(Path(self.config_path).glob("*.toml")):
            merged |= tomllib.loads(path.read_text())
        bootstrap = merged.get("bootstrap", {})
        unknown = set(bootstrap) - BOOTSTRAP_KEYS | {
            key for entry in bootstrap.get("hosts", []) for key in set(entry) - HOST_KEYS
        }
        if unknown:
            _fail(
                f"Config file error [bootstrap]: {len(unknown)} object item(s) left unpacked: "
                f"{', '.join(sorted(unknown))}"
            )
        return merged

    def _listen_locally(self) -> socket.socket:
        uri = self.attributes.get("local-uri", f"local://{self.attributes['rundir']}/local-{self.rank}")
        self.socket_path = uri.removeprefix("local://")
        Path(self.socket_path).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket_path)
        listener.listen(16)
        os.environ["FLUX_URI"] = uri
        (Path(self.attributes["rundir"]) / "pid").write_text(str(os.getpid()))
        threading.Thread(target=self._serve_locally, args=(listener,), daemon=True).start()
        return listener

    def _serve_locally(self, listener: socket.socket) -> None:
        """Run commands of `flux exec` on the followers; other commands only connect."""
        while True:
            try:
                client, _ = listener.accept()
                client.settimeout(WAIT_S)
                line = client.makefile().readline()
                if line:
                    client.sendall(
                        f"{max((each.execute(line) for each in self.followers), default=1)}\n".encode()
                    )
                client.close()
            except OSError:
                if listener.fileno() < 0:
                    return

    def _enter(self, state: str) -> None:
        self.state = state
        partial = Path(self.attributes["rundir"]) / ".state"
        partial.write_text(state)
        partial.rename(partial.with_name("state"))

    def _finalize(self) -> None:
        self._enter("finalize")
        _log({"finalizing": self.rank})
        held = Path(os.environ["FLUX_STANDIN_LOG"]).with_suffix(f".hold-{self.rank}")
        until = time.monotonic() + WAIT_S
        while held.exists() and time.monotonic() < until:
            time.sleep(0.02)

    def _lead(self, outcome: dict) -> int:  # type: ignore[type-arg]  # as above
        quorum = int(self.attributes.get("broker.quorum", self.size))
        restored = self.attributes.get("content.restore")
        if restored:
            _log({"restored": Path(restored).read_bytes().hex()})
        with socket.create_server(("127.0.0.1" if LEADER == "127.0.0.1" else "", self.port)) as server:
            self._enter("quorum")
            self._gather(server, quorum - 1)
            code = 1
            if not self.ending:
                self._enter("run")
                _log({"online": len(self.followers) + 1})
                if "lost" in outcome:
                    os._exit(int(outcome["lost"]))
                code = self._program()
            self._enter("cleanup")
            server.close()
            self._enter("shutdown")
            for follower in self.followers:
                follower.dismiss()
            self._finalize()
            dump = self.attributes.get("content.dump")
            if dump:
                Path(dump).write_bytes(
                    subprocess.run(["gzip", "-c"], input=b"kvs", capture_output=True, check=True).stdout
                )
        return code

    def _gather(self, server: socket.socket, wanted: int) -> None:
        until = time.monotonic() + WAIT_S
        waiting: list[socket.socket] = []  # it has another key: it is neither refused nor answered
        while len(self.followers) < wanted and not self.ending:
            if time.monotonic() > until:
                _fail(f"broker.quorum: {len(self.followers) + 1} of {wanted + 1} online")
            if not select.select([server], [], [], 0.1)[0]:
                continue
            peer, _ = server.accept()
            peer.settimeout(WAIT_S)
            greeting = peer.makefile().readline().split()
            if len(greeting) == 2 and greeting[1] == self.key:
                peer.sendall(b"welcome\n")
                self.followers.append(Follower(peer))
            else:
                waiting.append(peer)

    def _program(self) -> int:
        if not self.program:
            if "broker.rc2_none" not in self.attributes:
                _fail("no program: a shell would be started")
            _log({"idle": True})
            while not self.ending:
                time.sleep(0.05)
            return 0
        self.child = subprocess.Popen(self.program, process_group=0)
        if self.ending:
            os.killpg(self.child.pid, signal.SIGHUP)
        code = self.child.wait()
        self.child = None
        if code >= 0 and self.ending:
            return 1
        return 128 - code if code < 0 else code

    def _follow(self) -> int:
        _log({"connecting": self.rank})
        try:
            leader = socket.create_connection((LEADER, self.port), timeout=2)
        except OSError:
            _log({"missed": self.rank})
            time.sleep(2)
            return 1
        leader.settimeout(None)
        leader.sendall(f"{self.rank} {self.key}\n".encode())
        words = leader.makefile()
        if words.readline() != "welcome\n":
            return 1
        self._enter("run")
        _log({"joined": self.rank})
        _joined(self.attributes["rundir"]).touch()
        for line in words:
            if line == "bye\n":
                self._enter("shutdown")
                self._finalize()
                return 0
            leader.sendall(f"{self._execute(json.loads(line))}\n".encode())
        return 1

    def _execute(self, request: dict) -> int:  # type: ignore[type-arg]  # as above
        """Run a command for `flux exec`.
        Paths in the directory of the caller's pod become those of this pod, as in its own mounts.
        """
        words = [
            re.sub(r"/p0/", f"/p{os.environ['JOB_COMPLETION_INDEX']}/", word) for word in request["words"]
        ]
        _log({"executed": words})
        return subprocess.run(
            words, cwd=request["directory"], stdin=subprocess.DEVNULL, timeout=WAIT_S
        ).returncode

    def _stop(self, number: int, _: object) -> None:
        if self.state == "finalize":
            _log({"broken": self.rank})
            os._exit(1)
        if self.rank:
            _log({"left": self.rank})
            os._exit(0)
        if self.child is not None:
            os.killpg(self.child.pid, signal.SIGHUP)
        self.ending = True


class Follower:
    """A follower as its leader knows it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.answers = connection.makefile()

    def execute(self, line: str) -> int:
        try:
            self.connection.sendall(line.encode())
            return int(self.answers.readline() or 68)
        except OSError:
            return 68

    def dismiss(self) -> None:
        """Tell it to end, and wait until it has left."""
        with contextlib.suppress(OSError):
            self.connection.sendall(b"bye\n")
            self.answers.read()
            self.connection.close()


def submit(words: list[str]) -> int:
    watch, tasks, output, error, waitable = False, 1, None, None, False
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-N", "-n"):
            number = int(words.pop(0))
            tasks = number if word == "-n" else tasks
        elif word.startswith(("-N", "-n")):
            tasks = int(word[2:]) if word[1] == "n" else tasks
        elif word in SUBMIT_OPTIONS:
            watch, waitable = watch or word == "--watch", waitable or word == "--flags=waitable"
        elif word.startswith(SUBMIT_VALUES):
            output = word.partition("=")[2] if word.startswith("--output=") else output
            error = word.partition("=")[2] if word.startswith("--error=") else error
        else:
            return _refuse(f"flux-submit: unrecognized arguments: {word}")
    if not words:
        return _refuse("flux-submit: job command and arguments are missing")
    if words[0] == "unsatisfiable":
        return _refuse("flux-submit: ERROR: unsatisfiable request", 1)
    if watch:
        return max(_task(words, rank, None, None) for rank in range(tasks))
    code = max(_task(words, rank, output, error) for rank in range(tasks))
    number = len(list(_jobs().iterdir())) + 1
    (_jobs() / f"f{number}").write_text(f"{code} {int(waitable)}")
    print(f"f{number}")
    return 0


def _task(words: list[str], rank: int, output: str | None, error: str | None) -> int:
    with contextlib.ExitStack() as files:
        out = files.enter_context(Path(output).open("ab")) if output else None
        err = files.enter_context(Path(error).open("ab")) if error else None
        sys.stdout.flush()
        try:
            code = subprocess.run(
                words, env={**os.environ, "FLUX_TASK_RANK": str(rank)}, stdout=out, stderr=err
            ).returncode
        except FileNotFoundError:
            return 127
    return 128 - code if code < 0 else code


def job(words: list[str]) -> int:
    if words == ["wait", "--all"]:
        codes = [path.read_text().split() for path in sorted(_jobs().iterdir())]
        return max((int(code) for code, waitable in codes if waitable == "1"), default=0)
    if words[0] == "status" and len(words) == 2:
        return int((_jobs() / words[1]).read_text().split()[0])
    return _refuse(f"flux-job: {words} is not understood")


def resource(words: list[str]) -> int:
    if (
        words[:1] not in (["drain"], ["undrain"])
        or len(words) != (3 if words[0] == "drain" else 2)
        or not words[1].isdigit()
    ):
        return _refuse("flux-resource: usage")
    if (code := ping(["--count=1", "0"])) == 0:
        _log({f"{words[0]}ed": int(words[1])})
    return code


def _busy(rank: str) -> str:
    """Return the ids of the jobs that run on a rank, as a test wrote them."""
    path = Path(os.environ["FLUX_STANDIN_LOG"]).with_suffix(f".busy-{rank}")
    _log({"asked": int(rank)})
    return path.read_text() if path.exists() else ""


def ping(words: list[str]) -> int:
    if words != ["--count=1", "0"]:
        return _refuse("flux-ping: usage")
    rundir = Path(os.environ["FLUX_URI"].removeprefix("local://")).parent
    return (
        0
        if _connected() and (os.environ["JOB_COMPLETION_INDEX"] == "0" or _joined(str(rundir)).exists())
        else 1
    )


def uptime(words: list[str]) -> int:
    rundir = Path(os.environ["FLUX_URI"].removeprefix("local://")).parent
    if words or not _connected():
        return _refuse("flux-uptime: ERROR: Unable to connect to Flux", 1)
    print(f" 12:00:00 {(rundir / 'state').read_text()} 3s,  owner root,  depth 0,  size 2")
    return 0


def shutdown(words: list[str]) -> int:
    if words or not _connected():
        return _refuse("flux-shutdown: error connecting to Flux", 1)
    os.kill(
        int((Path(os.environ["FLUX_URI"].removeprefix("local://")).parent / "pid").read_text()),
        signal.SIGUSR1,
    )
    return 0


def execute(words: list[str]) -> int:
    if words[:3] != ["--noinput", "--dir=/", "--exclude=0"] or not words[3:]:
        return _refuse("flux-exec: usage")
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(WAIT_S)
        local.connect(os.environ["FLUX_URI"].removeprefix("local://"))
        local.sendall(json.dumps({"words": words[3:], "directory": "/"}).encode() + b"\n")
        return int(local.makefile().readline())


def _connected() -> bool:
    with socket.socket(socket.AF_UNIX) as local:
        try:
            local.connect(os.environ["FLUX_URI"].removeprefix("local://"))
        except OSError:
            return False
    return True


def _joined(rundir: str) -> Path:
    return Path(rundir) / "joined"


def _jobs() -> Path:
    jobs = Path(os.environ["FLUX_STANDIN_LOG"]).with_suffix(".jobs")
    jobs.mkdir(exist_ok=True)
    return jobs


def _outcome(rank: int) -> dict:  # type: ignore[type-arg]  # written by a test
    """Return the next outcome of this rank. Each is used once."""
    script = Path(os.environ.get("FLUX_STANDIN_SCRIPT", "/nowhere"))
    if not script.exists():
        return {}
    outcomes = json.loads(script.read_text()).get(str(rank), [])
    starts = Path(os.environ["FLUX_STANDIN_LOG"]).with_suffix(f".starts-{rank}")
    turn = int(starts.read_text()) if starts.exists() else 0
    starts.write_text(str(turn + 1))
    return dict(outcomes[turn]) if turn < len(outcomes) else {}


def _certificate(path: Path) -> str:
    status = path.stat()
    if status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _fail(f"{path} readable by group/other")
    if status.st_uid != os.geteuid():
        _fail(f"{path} belongs to {status.st_uid}")
    text = path.read_text()
    if "name = " not in text:
        _fail("overlay: Invalid argument")
    return next(line.split('"')[1] for line in text.splitlines() if "public-key" in line)


def _owned(path: Path) -> None:
    if not path.is_dir() or path.stat().st_uid != os.geteuid():
        _fail(f"{path} is not a directory of its owner")


def _hostlist(entries: list[dict[str, str]]) -> list[str]:
    hosts: list[str] = []
    for entry in entries:
        text = entry["host"]
        if "[" in text:
            stem, _, ranges = text.rstrip("]").partition("[")
            first, _, last = ranges.partition("-")
            hosts += [f"{stem}{number}" for number in range(int(first), int(last or first) + 1)]
        else:
            hosts.append(text)
    return hosts


def _log(event: dict[str, object]) -> None:
    with Path(os.environ["FLUX_STANDIN_LOG"]).open("a") as file:
        file.write(json.dumps({"host": os.environ.get("HOSTNAME"), **event}) + "\n")


def _fail(message: str) -> None:
    print(f"broker.err: {message}", file=sys.stderr)
    raise SystemExit(1)


def _refuse(message: str, code: int = 2) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
