"""`fluxqueue rest` as a process, with a token and a stand-in `flux` that records its arguments."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.loop_blocks import assert_short_logged_blocks

__all__ = ["RestService", "rest_service"]

_STAND_IN = """#!/bin/sh
here=${0%/*}
printf '%s ' "$@" >>"$here/calls"; echo >>"$here/calls"
[ ! -e "$here/broken" ] || { echo "ModuleNotFoundError: No module named '_cffi_backend'" >&2; exit 1; }
for word in "$@"; do
    # The command of an executor is made at its submission, and its output is kept.
    if [ "$1" = submit ] && [ "$word" = -c ]; then
        while [ "$2" != -c ]; do shift; done
        id=f$(echo $$ | tr 0 z)
        "$@" >"$here/raw-$id" 2>&1
        echo $? >"$here/code-$id"
        "$1" -c 'import json, sys
print(json.dumps({"name": "data", "context": {"data": sys.stdin.read()}}))' \
            <"$here/raw-$id" >"$here/output-$id"
        echo "$id"
        exit 0
    fi
done
for last in "$@"; do :; done
case "$1 $2" in
"submit refuse") echo "flux-submit: ERROR: unsatisfiable request" >&2; exit 1 ;;
submit*) echo f2ABC ;;
"jobs -a")
    if [ -e "$here/code-$last" ]; then
        code=$(cat "$here/code-$last")
        [ "$code" = 0 ] && result=COMPLETED || result=FAILED
        echo '{"id": 7, "state": "INACTIVE", "result": "'$result'", "returncode": '$code'}'
        exit 0
    fi
    case $last in
    f9) echo "flux-jobs: ERROR: JobID f9 unknown" >&2; exit 1 ;;
    f2ABC) echo '{"id": 7, "state": "RUN"}' ;;
    *) echo '{"jobs": [{"id": 7, "state": "RUN"}]}' ;;
    esac ;;
"job attach")
    echo one
    while [ ! -e "$here/ended" ]; do sleep 0.05; done
    echo two ;;
"job eventlog") [ ! -e "$here/output-$last" ] || exec cat "$here/output-$last"
    echo '{"name": "data", "context": {"data": "so far"}}' ;;
"jobs --count"*) echo '{"jobs": [{"id": 1, "state": "RUN"}]}' ;;
"resource list") printf 'free\\t2\\t8\\t0\\tflux-[0-1]\\n' ;;
esac
"""


@dataclass
class RestService:
    """A running service, and the arguments of its `flux`."""

    folder: Path
    port: int

    def call(self, method: str, path: str, body: Any = None, token: str | None = "right") -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if "json" in answer.headers[
                    "content-type"
                ] else content.decode()
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@contextmanager
def rest_service(folder: Path) -> Iterator[RestService]:
    """Run the service; everything of it is in a folder."""
    (folder / "bin").mkdir()
    flux = folder / "bin" / "flux"
    flux.write_text(_STAND_IN)
    flux.chmod(0o755)
    (folder / "token").write_text("right\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["rest", "--host", "127.0.0.1", "--port", str(port), "--token-file", str(folder / "token")]
    log = folder / "rest.log"
    output = log.open("wb")
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("fluxqueue")), *words],
        env={**os.environ, "FLUX_VIEW": str(folder)},
        stdout=output,
        stderr=output,
    )
    running = RestService(folder / "bin", port)
    try:
        _await(running, process, log)
        yield running
    finally:
        process.terminate()
        ended = process.wait(20)
        output.close()
    assert ended == 0, log.read_text()
    assert_short_logged_blocks([log])


def _await(service: RestService, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if service.call("GET", "/healthz", token=None)[0] == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())
