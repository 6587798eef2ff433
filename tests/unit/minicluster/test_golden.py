"""Every example, rendered as in its golden file, in texts that bash, shellcheck and a TOML reader accept.

The golden files leave out what is the same in all (the scripts of ``shell/``) and what differs each time (the
certificate). To update them after an intended change, run this file with ``FLUXQUEUE_WRITE_GOLDENS=1``, then
read the diff.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import platform
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fluxqueue.certs.curve import read
from fluxqueue.cli.minicluster import main, written

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "minicluster").glob("*.yaml"))
GOLDEN = Path(__file__).with_name("golden")
SHELL = Path(__file__).parents[3] / "minicluster" / "shell"
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
OURS = ("settings.sh", "exports.sh", "batch.sh")

Json = dict[str, Any]

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def loaded(text: str) -> list[Json]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def rendered(example: Path) -> list[Json]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["render", str(example)]) == 0
    return loaded(out.getvalue())


def texts(example: Path) -> dict[str, str]:
    data: dict[str, str] = next(each for each in rendered(example) if each["kind"] == "ConfigMap")["data"]
    return data


def essential(objects: list[Json]) -> list[Json]:
    """Return the objects without common scripts, certificates and all followers but the first."""
    kept = []
    for each in objects:
        if each["kind"] == "Pod" and each["spec"].get("hostname", "").endswith(("-2", "-3")):
            continue
        if each["kind"] == "ConfigMap":
            each = {
                **each,
                "data": {name: text for name, text in each["data"].items() if not (SHELL / name).exists()},
            }
        if each["kind"] == "Secret":
            each = {**each, "data": dict.fromkeys(each["data"], "...")}
        kept.append(each)
    return kept


@each_example
def test_is_rendered_as_it_was(example: Path) -> None:
    path = GOLDEN / example.name
    now = essential(rendered(example))
    if os.environ.get("FLUXQUEUE_WRITE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(written(now))
    assert now == loaded(path.read_text())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="shellcheck has no wheel for this processor")
def test_generated_files_pass_shellcheck_and_bash(tmp_path: Path) -> None:
    ours: list[Path] = []
    others: list[Path] = []
    seen: set[str] = set()
    for example in EXAMPLES:
        for name, text in texts(example).items():
            if name.endswith(".sh") and not (SHELL / name).exists() and text not in seen:
                seen.add(text)
                path = tmp_path / f"{example.stem}-{name}"
                path.write_text(text)
                (ours if name in OURS or name.endswith(".settings.sh") else others).append(path)
    checked = subprocess.run([SHELLCHECK, *ours], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
    for path in [*ours, *others]:
        read_by_bash = subprocess.run(["bash", "-n", path], capture_output=True, text=True, timeout=20)
        assert read_by_bash.returncode == 0, f"{path.name}: {read_by_bash.stderr}"


@each_example
def test_the_configuration_is_toml_and_the_certificate_one_that_brokers_use(example: Path) -> None:
    assert tomllib.loads(texts(example)["broker.toml"])["bootstrap"]["hosts"]
    secret = next(each for each in rendered(example) if each["kind"] == "Secret")
    assert read(base64.b64decode(secret["data"]["curve.cert"]).decode()).name


@each_example
def test_names_of_related_objects_match(example: Path) -> None:
    objects = rendered(example)
    names = {
        kind: {each["metadata"]["name"] for each in objects if each["kind"] == kind}
        for kind in ("Secret", "ConfigMap", "Service")
    }
    brokers = [each for each in objects if each["kind"] == "Pod" and "generateName" in each["metadata"]]
    assert brokers
    for pod in brokers:
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert volumes["flux-files"]["configMap"]["name"] in names["ConfigMap"]
        assert volumes["flux-curve"]["secret"]["secretName"] in names["Secret"]
        assert pod["spec"]["subdomain"] in names["Service"]


@each_example
def test_everything_goes_with_its_owner(example: Path) -> None:
    owners = {
        (owner["kind"], owner["name"], owner["controller"])
        for each in rendered(example)
        if "generateName" not in each["metadata"]
        for owner in each["metadata"]["ownerReferences"]
    }
    assert len(owners) == 1
