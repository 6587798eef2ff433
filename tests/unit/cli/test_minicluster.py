"""`fluxqueue minicluster`: rendering without a cluster, certificates,
and one clear sentence for what cannot be done.
"""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fluxqueue.certs.curve import read, read_file
from fluxqueue.cli.minicluster import main

MINICLUSTER = """
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: sim, namespace: physics}
spec:
  size: 2
  containers: [{image: app, command: hostname}]
"""


def render(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["render", *words]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sim.yaml"
    path.write_text(MINICLUSTER)
    return path


def test_prints_every_object_and_the_pods(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [each["kind"] for each in render(capsys, str(file))]
    assert kinds == ["Secret", "ConfigMap", "Service", "Job", "Pod", "Pod"]


def test_reads_standard_input_and_several_documents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.stdin",
        io.StringIO(f"kind: Namespace\n---\n{MINICLUSTER}\n---\n{MINICLUSTER.replace('sim', 'two')}"),
    )
    names = [each["metadata"]["name"] for each in render(capsys, "-") if each["kind"] == "Job"]
    assert names == ["sim", "two"]


def test_assumes_the_given_allocation(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = render(capsys, str(file), "--cores", "16", "--gpus", "2")
    configuration = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["broker.toml"]
    assert 'cores = "0-15"\ngpus = "0-1"' in configuration


def test_is_the_same_each_time_but_for_the_certificate(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = tmp_path / "curve.cert"
    assert main(["curve", "sim", "--output", str(certificate)]) == 0
    words = [str(file), "--certificate", str(certificate)]
    assert render(capsys, *words) == render(capsys, *words)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Service", "neither a MiniCluster nor a Job"),
        ("{", "is not YAML"),
        (MINICLUSTER.replace("size: 2", "size: many"), "is not a MiniCluster"),
        (MINICLUSTER.replace("size: 2", "size: 2\n  maxSize: 1"), "is not valid"),
        (MINICLUSTER.replace("command: hostname", "resources: {limits: {cpu: lots}}"), "lots"),
        (
            "kind: Job\nmetadata: {name: a, annotations: {fluxqueue/minicluster: 'true'}}",
            "is not a Job with containers",
        ),
        (
            """kind: Job
metadata: {name: a, annotations: {fluxqueue/minicluster: 'true'}}
spec: {completions: 1, template: {spec: {containers: [{name: a, image: b}]}}}""",
            "set the command",
        ),
    ],
)
def test_what_cannot_be_rendered_is_one_sentence(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert main(["render", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fluxqueue minicluster: ")
    assert captured.err.count("\n") == 1
    assert problem in captured.err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "/nowhere.yaml"]) == 1
    assert "/nowhere.yaml cannot be read: No such file" in capsys.readouterr().err


def test_makes_a_certificate_for_its_owner_only_and_leaves_files_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "curve.cert"
    assert main(["curve", "sim", "--output", str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = read_file(path)
    assert main(["curve", "sim", "--output", str(path)]) == 1
    assert read_file(path) == first
    assert "File exists" in capsys.readouterr().err


def test_prints_a_certificate_if_no_file_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", "sim"]) == 0
    assert read(capsys.readouterr().out).name == "sim"


def test_checks_a_certificate_as_a_broker_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "curve.cert"
    assert main(["curve", "sim", "--output", str(path)]) == 0
    assert main(["curve", "--check", str(path)]) == 0
    path.chmod(0o644)
    assert main(["curve", "--check", str(path)]) == 1
    captured = capsys.readouterr()
    assert "its name is sim" in captured.out
    assert "chmod 600" in captured.err
    assert path.read_text().splitlines()[-1] not in captured.out + captured.err


@pytest.mark.parametrize("words", [["curve"], ["curve", "a", "--check", "b"], ["curve", "a_b"]])
def test_says_what_curve_wants(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.startswith("fluxqueue minicluster: ")
