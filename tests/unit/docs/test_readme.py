"""The README is correct: its folders, imports and files exist,
and every command in it works or is run by a named other test.
"""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import Reason, State
from fluxqueue.api.fluxqueues import FluxQueueSpec

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """Return the commands of the README's shell blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [
        shlex.join(words)
        for block in blocks
        for line in block.splitlines()
        if (words := shlex.split(line, comments=True))
    ]


RUN_ELSEWHERE = {
    "make demo": (
        "test_demo.py runs `fluxqueue local demo`, which is all that this target does after the setup"
    ),
    "make test": "it is what runs this test",
}
ON_A_PLANE = {
    "kubectl apply -f examples/20-indexed-job.yaml",
    "kubectl label namespace default fluxqueue/managed=true",
}
"""Commands that test_readme_on_a_cluster.py runs, in its own order."""
WITH_HELM = {"helm install fluxqueue charts/fluxqueue --namespace fluxqueue-system --create-namespace"}
"""Commands that test_readme_on_a_cluster.py runs on a control plane without fluxqueue."""


WALKED = {
    "kubectl apply -f examples/start/",
    "kubectl fluxqueue jobs",
    "kubectl fluxqueue explain job/large",
    "kubectl fluxqueue hold large",
    "kubectl fluxqueue release large",
    "kubectl fluxqueue prioritize large 10",
    "kubectl fluxqueue cancel simulate",
    "kubectl fluxqueue history",
    "kubectl fluxqueue queues",
    "kubectl get fluxjobs",
}
"""The commands of section Use, which test_newcomer.py runs as they are."""


def test_every_command_names_the_test_that_runs_it() -> None:
    assert set(commands()) == {*RUN_ELSEWHERE, *ON_A_PLANE, *WITH_HELM, *WALKED}


@pytest.mark.parametrize("command", RUN_ELSEWHERE)
def test_the_make_targets_exist(command: str) -> None:
    make, *targets = shlex.split(command)
    done = subprocess.run(
        [make, "-n", *targets], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def folder_table() -> list[tuple[str, str]]:
    return re.findall(r"^\| `(\w+)/` \|[^|]*\| `(from [^`]+)` \|$", README, re.MULTILINE)


@pytest.mark.parametrize(("folder", "line"), folder_table())
def test_the_import_of_each_folder_works_and_comes_from_that_folder(folder: str, line: str) -> None:
    module, name = re.fullmatch(r"from (\S+) import (\w+)", line).groups()  # type: ignore[union-attr]  # no match is a failure too
    loaded = importlib.import_module(module)
    imported = getattr(loaded, name, None) or importlib.import_module(f"{module}.{name}")
    place = Path(str(loaded.__file__ or imported.__file__)).resolve()
    assert place.is_relative_to(ROOT / folder)


def test_every_folder_is_in_the_table() -> None:
    rooms = {path.name for path in (ROOT / "fluxqueue").iterdir()}
    assert {folder for folder, _ in folder_table()} == rooms


def test_the_picture_fits_a_terminal_of_120_columns() -> None:
    (picture,) = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert max(map(len, picture.splitlines())) <= 120
    assert picture.isascii()


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/reference/objects.md", "docs/security.md"]
)
def test_links_and_paths_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    links = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    paths = set(
        re.findall(r"`((?:charts|examples|tests|docs|local|api|benchmarks)/[\w./-]+|Dockerfile\.\w+)`", text)
    ) - {
        "benchmarks/results",
        "docs/reference_NAME.py",
    }
    missing = [path for path in links if not (ROOT / page).parent.joinpath(path).exists()] + [
        path for path in paths if not (ROOT / path).exists()
    ]
    assert missing == []


def test_the_page_on_objects_names_exactly_the_keys_that_are_used() -> None:
    text = (ROOT / "docs" / "reference" / "objects.md").read_text()
    rooms = ("api", "client", "webhook", "queue")
    paths = [path for room in rooms for path in (ROOT / room).rglob("*.py") if path.name != "names.py"]
    code = "".join(path.read_text() for path in paths)
    keys = {
        name: value
        for name, value in vars(names).items()
        if name.endswith(("_LABEL", "_ANNOTATION")) and value.startswith("fluxqueue")
    }
    used = {value for name, value in keys.items() if re.search(rf"\b{name}\b", code)}
    assert {key for key in keys.values() if f"`{key}`" in text} == used


def test_the_page_on_objects_names_every_state_and_reason() -> None:
    states, reasons = (
        (ROOT / "docs" / "reference" / "objects.md").read_text().split("## States")[1].split("## Reasons")
    )
    assert {str(state) for state in State} <= set(re.findall(r"`(\w+)`", states))
    described = set(re.findall(r"^\| `(\w+)` \|", reasons.split("## ")[0], re.MULTILINE))
    assert described == {str(reason) for reason in Reason if reason}


def test_the_page_on_objects_names_every_field_of_a_queue_with_its_default() -> None:
    table = (ROOT / "docs" / "reference" / "objects.md").read_text().split("## FluxQueues")[1].split("## ")[0]
    described = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE))
    fields = {field.encode_name: field.default for field in msgspec.structs.fields(FluxQueueSpec)}
    assert set(described) == set(fields)
    for name, default in fields.items():
        if default is not None:
            assert described[name].strip("`") == str(default)
