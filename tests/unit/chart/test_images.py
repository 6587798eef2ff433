"""The Dockerfiles, as far as they can be judged without building them."""

import re
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

import pytest
from chart_rendering import CHART, Rendered
from packaging.requirements import Requirement

ROOT = CHART.parent.parent

_WEBHOOK_IMPORTS = """
import importlib, json, pkgutil, sys
import httptools, uvloop  # by name, from uvicorn's configuration
import fluxqueue.webhook, fluxqueue.cli.main
for module in pkgutil.walk_packages(fluxqueue.webhook.__path__, "fluxqueue.webhook."):
    importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def _dockerfile(name: str) -> str:
    return (ROOT / f"Dockerfile.{name}").read_text()


def _with_dependencies(names: set[str]) -> set[str]:
    """These distributions and all they need."""
    found: set[str] = set()
    open_ = {name.lower() for name in names}
    while open_:
        name = open_.pop().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        requirements = (Requirement(text) for text in distribution(name).requires or ())
        open_ |= {r.name.lower().replace("_", "-") for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})}
    return found


def test_the_webhook_s_image_holds_every_library_it_imports_and_leaves_out_the_heavy_ones() -> None:
    (listed,) = re.findall(r"--constraint constraints\.txt \\\n\s+([a-z \-]+) \\\n", _dockerfile("webhook"))
    held = _with_dependencies(set(listed.split()))
    done = subprocess.run([sys.executable, "-c", _WEBHOOK_IMPORTS], capture_output=True, text=True, timeout=60, check=True)
    owners = packages_distributions()
    imported = {owner.lower().replace("_", "-") for module in re.findall(r'"(\w+)"', done.stdout) for owner in owners.get(module, ())}
    optional = {"rich", "pygments", "setuptools", "cffi", "attrs"}  # taken where present, by libraries that do without
    assert imported - {"fluxqueue"} - optional <= held
    assert not held & {"numpy", "grpcio", "psycopg", "kubernetes", "procrastinate", "protobuf"}


@pytest.mark.parametrize("image", ["webhook", "queue"])
def test_an_image_names_no_registry_runs_as_a_number_and_enters_by_the_one_command(image: str) -> None:
    text = _dockerfile(image)
    assert all("/" not in base and "." not in base.partition(":")[0] for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["65532:65532"]
    assert 'ENTRYPOINT ["fluxqueue"]' in text
    assert f'CMD ["{image}"]' in text


def test_the_chart_runs_the_images_as_their_own_user(default: Rendered) -> None:
    specs = dict(default.pod_specs())
    assert [specs[f"fluxqueue-{image}"]["securityContext"]["runAsUser"] for image in ("webhook", "queue")] == [65532, 65532]


def test_every_room_of_the_wheel_is_in_the_build_context() -> None:
    wheel = (ROOT / "pyproject.toml").read_text().split("[tool.hatch.build.targets.wheel]")[1].split("]")[0]
    rooms = {path.split("/")[0] for path in re.findall(r'"([^"]+)"', wheel)}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert rooms <= kept
