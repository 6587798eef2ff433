"""A newcomer's way: what `KEEP=1 make demo` leaves, and then the commands of the README and of the
five-minute start, typed as shown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from support.dashboard_stage import Browserless
from support.pages import ROOT, blocks_run_by

from fluxqueue.local.demo import RESERVED_ANNOTATION

HERE = "tests/e2e/test_newcomer.py"
BIN = Path(sys.executable).parent
WITHIN_S = 90
KINDS = {"job/prepare", "job/simulate", "podgroup/train", "job/ensemble", "job/large"}
"""What `kubectl fluxqueue jobs` calls the work of examples/start, without the pods of its Deployment."""


@dataclass
class Shell:
    """A shell in which a person types: what it exports stays for the next block."""

    environment: dict[str, str]
    folder: Path

    def types(self, block: str) -> str:
        """Run a block in the repository; return what it prints."""
        kept = self.folder / "environment.json"
        keep = (
            "\n"
            f"{shlex.quote(sys.executable)} -c 'import json, os; "
            f"print(json.dumps(dict(os.environ)))' > {shlex.quote(str(kept))}"
        )
        command = ["bash", "-euo", "pipefail", "-c", re.sub(r"(?<!/)\.venv/bin/", f"{BIN}/", block) + keep]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        self.environment = json.loads(kept.read_text())
        return done.stdout

    def sees(self, command: str, shown: Callable[[str], object]) -> str:
        """Repeat a command, as somebody who waits, until it shows something."""
        deadline = time.monotonic() + WITHIN_S
        while not shown(output := self.types(command)):
            assert time.monotonic() < deadline, f"{command} still shows\n{output}"
            time.sleep(0.3)
        return output

    def states(self) -> Mapping[str, str]:
        """Return object -> state, as `jobs` shows them."""
        rows = (line.split() for line in self.types("kubectl fluxqueue jobs").splitlines()[1:])
        return {row[0]: row[2] for row in rows}


def demo_examples(folder: Path) -> Path:
    """Copy what shows most in the least time: nothing of it runs when ``big`` is applied,
    so no nodes are reserved for that.
    """
    folder.mkdir()
    for name in ("10-job.yaml", "40-deployment.yaml"):
        shutil.copy(ROOT / "examples" / name, folder)
    big = yaml.safe_load((ROOT / "examples" / "50-big-job.yaml").read_text())
    del big["metadata"]["annotations"][RESERVED_ANNOTATION]
    (folder / "50-big-job.yaml").write_text(yaml.safe_dump(big))
    return folder


@pytest.fixture(scope="module")
def left(service_folder: Path) -> Iterator[tuple[Shell, str]]:
    """The shell of a person for whom the demo left its cluster, and what the demo printed."""
    folder = service_folder / "newcomer"
    folder.mkdir(mode=0o711)
    others = {
        key: value
        for key, value in os.environ.items()
        if key not in ("KUBECONFIG", "DATABASE_URL", "NO_COLOR")
    }
    environment = {**others, "XDG_STATE_HOME": str(folder / "state"), "KEEP": "1"}
    program = str(BIN / "fluxqueue")
    command = [program, "local", "demo", "--examples", str(demo_examples(folder / "examples"))]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield Shell(environment, folder), done.stdout
    finally:
        subprocess.run(
            [program, "local", "down", "--delete"],
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )


def signed_in(address: str, token: str) -> Browserless:
    """Open the dashboard with a token."""
    port = urlsplit(address).port
    assert port is not None
    browser = Browserless(port)
    assert "Sign in" in browser.get("/sign-in").text
    assert browser.sign_in(token).status == 303
    return browser


def readme_use() -> list[str]:
    section = (ROOT / "README.md").read_text().split("\n## Use\n")[1].split("\n## ")[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return blocks[0].splitlines()


def test_what_the_demo_prints_last_and_the_readme_lead_through_the_queue(left: tuple[Shell, str]) -> None:
    person, printed = Shell(dict(left[0].environment), left[0].folder), left[1]
    lines = [line.strip() for line in printed.split("== The cluster keeps running")[1].splitlines()]
    evaluate, *look = [line for line in lines if line.startswith(("eval ", "kubectl fluxqueue "))]
    person.types(evaluate)
    assert [("job/big" in person.types(line)) for line in look] == [True, True]
    (address,) = [line.split()[0] for line in lines if line.startswith("https://")]
    (make_token,) = [line for line in lines if line.endswith("kubectl create token me")]
    browser = signed_in(address, person.types(make_token).splitlines()[-1])
    assert "job/big" in browser.get("/queue").text

    apply, *others = readme_use()
    assert "large created" in person.types(apply)
    person.sees("kubectl fluxqueue explain large", lambda text: "WaitingForNodes" in text)
    said = {line.partition("#")[0].strip(): person.types(line) for line in others}
    assert "WaitingForNodes" in said["kubectl fluxqueue explain job/large"]
    assert "job/big" in said["kubectl fluxqueue history"]
    person.sees(
        "kubectl get fluxjobs", lambda text: re.search(r"^job-large-\S+ +Running", text, re.MULTILINE)
    )
    person.types("kubectl delete -f examples/start/")


def priorities_of(fluxjobs: str, name: str) -> list[int | None]:
    listed = json.loads(fluxjobs)["items"]
    return [each["spec"].get("priority") for each in listed if name in each["metadata"]["name"]]


def test_the_five_minute_start_leads_from_nothing_to_a_clean_cluster(left: tuple[Shell, str]) -> None:
    person = Shell(dict(left[0].environment), left[0].folder)
    point, submit, why, steer, reader, back, dashboard, clean = blocks_run_by("start.md", HERE)
    person.types(point)
    person.types(submit)
    person.sees(
        "kubectl fluxqueue jobs", lambda text: re.search(r"job/large .* Pending .* WaitingForNodes", text)
    )
    states = person.states()
    assert states["job/simulate"] == "Running"
    assert set(states) >= KINDS
    assert len([each for each in states if each.startswith("pod/monitor-")]) == 2
    explained = person.sees(why, lambda text: "nodes are reserved for it from" in text)
    assert "What helps" in explained
    assert "2 pods, each with 0.5 cpu" in person.types("kubectl fluxqueue explain minicluster/ensemble")
    assert "8 pods, each with 4.5 cpu and 8 GiB memory" in explained

    hold, release, prioritize, *rest = steer.splitlines()
    person.types(hold)
    person.sees(why, lambda text: "Held" in text)
    person.types(f"{release}\n{prioritize}")
    person.sees("kubectl get fluxjobs -o json", lambda text: priorities_of(text, "large") == [10])
    assert "job/large started on node-[1-8]" in person.types("\n".join(rest))
    person.types("kubectl fluxqueue wait train ensemble prepare --for finished")

    person.types(reader)
    looked = person.types(back)
    person.sees("kubectl fluxqueue history", lambda text: all(name in text for name in KINDS))
    assert re.search(r"^team +default +[1-9]", looked, re.MULTILINE)

    *account, make_token, status = dashboard.splitlines()
    person.types("\n".join(account))
    token = person.types(make_token)
    (address,) = re.findall(r"^The dashboard: (https://\S+)$", person.types(status), re.MULTILINE)
    browser = signed_in(address, token)
    queue = browser.get("/queue").text
    assert "job/large" in queue
    assert "job/big" not in queue
    assert "job/simulate" in browser.get("/history?namespace=team").text
    person.types(clean)
    assert (
        "no local cluster runs"
        in subprocess.run(
            [str(BIN / "fluxqueue"), "local", "status"],
            env=person.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stderr
    )
