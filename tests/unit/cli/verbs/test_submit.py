import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders import make_queue
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.api import names
from fluxqueue.cli import plugin
from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.cli.verbs import submit
from fluxqueue.kube.kubeconfig import Connection

JOBS = "/apis/batch/v1/namespaces/science/jobs"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PluginServer:
    server = PluginServer()
    server.objects[f"POST {JOBS}"] = {
        "metadata": {"name": "solve-x", "labels": {names.SEEN_LABEL: names.SEEN_VALUE}}
    }
    monkeypatch.setattr(submit, "connection_of", lambda _: Connection("https://x", namespace="science"))
    monkeypatch.setattr(submit, "ApiClient", lambda _: server)
    return server


def test_a_job_is_tried_and_then_created(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["submit", "-N", "2", "--image", "x", "--", "solve", "-v"]) == 0
    assert [(verb, path) for verb, path, _ in server.written] == [("POST?dryRun", JOBS), ("POST", JOBS)]
    assert capsys.readouterr().out == "job.batch/solve-x created\n"


def test_a_script_and_what_is_typed_are_one_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "md.sh"
    path.write_text("#!/bin/sh\n#FQ -N 2 --image a --env A=1\necho $(hostname)\n")
    assert (
        plugin.main(
            ["submit", "--dry-run", "-o", "yaml", str(path), "in.dat", "-N", "3", "--env", "B=2", "--", "-v"]
        )
        == 0
    )
    text = capsys.readouterr().out
    job: dict[str, Any] = yaml.safe_load(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["spec"]["parallelism"], container["image"], job["metadata"]["generateName"]) == (
        3,
        "a",
        "md-",
    )
    assert container["command"][:2] == ["/bin/sh", "-c"]
    assert container["command"][3:] == [str(path), "in.dat", "-v"]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert "          echo $$(hostname)\n" in text


def test_a_script_of_slurm_is_submitted_with_what_it_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "md.sh"
    path.write_text(
        "#!/bin/bash\n#SBATCH --job-name=MD_run\n#SBATCH -N 2 -c 4 -o out\n#FQ -c 8 --image a\nsolve\n"
    )
    assert plugin.main(["submit", "--dry-run", "-o", "yaml", str(path), "-N", "3"]) == 0
    out, err = capsys.readouterr()
    job: dict[str, Any] = yaml.safe_load(out)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["metadata"]["generateName"], job["spec"]["parallelism"]) == ("md-run-", 3)
    assert container["resources"]["requests"] == {"cpu": "8"}
    assert err == (
        f"note: line 3 of {path}: #SBATCH --output has no effect: "
        "what pods print is read by kubectl fluxqueue logs\n"
    )


def test_a_line_of_slurm_that_is_not_offered_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "md.sh"
    path.write_text("#!/bin/bash\n#SBATCH --mail-type=END\nsolve\n")
    assert plugin.main(["submit", "--image", "x", "--dry-run", str(path)]) == 1
    assert capsys.readouterr().err.startswith(
        f"error: line 2 of {path}: #SBATCH --mail-type is not offered: no mail is sent"
    )


def test_forms_of_a_dry_run(server: PluginServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["submit", "--dry-run", "--image", "x", "-J", "solve"]) == 0
    assert plugin.main(["submit", "--dry-run=server", "--image", "x", "-o", "name"]) == 0
    assert plugin.main(["submit", "--dry-run=client", "--image", "x", "-o", "json"]) == 0
    first, second, *third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("job.batch/solve (dry run)", "job.batch/solve-x")
    assert json.loads("\n".join(third))["kind"] == "Job"
    assert [verb for verb, _, _ in server.written] == ["POST?dryRun"]


def test_a_dry_run_has_the_namespace_of_the_real_one(
    server: PluginServer, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "current-context": "a",
        "contexts": [
            {"name": "a", "context": {"namespace": "science"}},
            {"name": "b", "context": {"namespace": "arts"}},
        ],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert plugin.main(["submit", "--image", "x", "-J", "solve"]) == 0
    capsys.readouterr()
    assert plugin.main(["submit", "--image", "x", "-J", "solve", "--dry-run", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == server.written[-1][2]
    assert plugin.main(["submit", "--image", "x", "--context", "b", "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["namespace"] == "arts"


def test_nothing_is_created_where_nothing_would_wait(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.objects[f"POST {JOBS}"] = {"metadata": {"name": "solve-x"}}
    assert plugin.main(["submit", "--image", "x"]) == 1
    assert "fluxqueue does not manage namespace science" in capsys.readouterr().err
    assert [verb for verb, _, _ in server.written] == ["POST?dryRun"]


def test_a_queue_that_does_not_exist_is_refused_before_anything_is_sent(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.has(f"/apis/{names.API_VERSION}/fluxqueues", make_queue("night"))
    assert plugin.main(["submit", "--image", "x", "-q", "nigth"]) == 1
    assert (
        capsys.readouterr().err
        == "error: there is no queue 'nigth': did you mean night? there are default, night\n"
    )
    assert server.written == []


def test_a_webhook_that_does_not_answer_is_named(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals[JOBS] = ApiRefused(
        500, "InternalError", 'failed calling webhook "jobs.fluxqueue": connection refused'
    )
    assert plugin.main(["submit", "--image", "x"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: fluxqueue's webhook does not answer, so nothing can be submitted: kubectl get pods"
    )


@pytest.mark.parametrize(
    ("state", "code", "printed"),
    [
        ({"state": "Completed", "outcome": "Succeeded"}, 0, "0: hello\n"),
        ({"state": "Failed", "outcome": "Failed", "message": "the Job failed"}, 1, "0: hello\n"),
        ({"state": "Cancelled", "allocatedAt": None}, 1, ""),
    ],
    ids=["completed", "failed", "never had nodes"],
)
def test_what_a_job_has_printed_is_shown_also_if_nobody_saw_it_run(
    server: PluginServer, capsys: pytest.CaptureFixture[str], state: dict[str, Any], code: int, printed: str
) -> None:
    ended = {
        "nodes": "node-1",
        "allocatedAt": "2026-03-02T11:59:00Z",
        "finishedAt": "2026-03-02T11:59:01Z",
        **state,
    }
    server.has_jobs(fluxjob("solve-x", namespace="science", pods=1, **ended), namespace="science")
    server.objects[f"{JOBS}/solve-x"] = {
        "metadata": {"name": "solve-x", "namespace": "science", "uid": "solve-x"}
    }
    pods = "/api/v1/namespaces/science/pods"
    pod = {
        "metadata": {"name": "solve-x-0", "namespace": "science", "uid": "p"},
        "spec": {"nodeName": "node-1", "containers": []},
    }
    server.has(pods, {**pod, "status": {"phase": "Succeeded"}})
    server.streams[f"{pods}/solve-x-0/log"] = [b"hello\n"]
    assert plugin.main(["submit", "--image", "x", "--attach"]) == code
    out, notes = capsys.readouterr()
    assert out == f"job.batch/solve-x created\n{printed}"
    assert notes.count("job/solve-x ") == 1 + (code == 0)
