"""The first hour of somebody who knows Slurm: what is typed, slips included, and what comes back.

Each line is read, or refused with one sentence that says what to type instead. None is dropped, and none ends
in a traceback.
"""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path

import pytest
from support.builders import make_queue
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.api import names
from fluxqueue.cli import plugin, sessions
from fluxqueue.cli.api_client import ApiRefused
from fluxqueue.kube.kubeconfig import Connection

SCRIPT = """#!/bin/bash
#SBATCH --job-name=MD_run
#SBATCH -N 2 --ntasks-per-node=4
#SBATCH -c 2 --mem=16G -t 1-12:00:00
#SBATCH -o slurm-%j.out
#FQ --image example/md
srun ./md in.dat
"""
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"

TRANSCRIPT = [
    # What is there?
    ("sinfo", 1, "there is no command 'sinfo': here it is nodes"),
    ("squeue", 1, "there is no command 'squeue': here it is jobs"),
    ("squeue -u me", 1, "here it is jobs"),
    ("sbatch md.sh", 1, "here it is submit"),
    ("scancel 4711", 1, "here it is cancel"),
    (
        "scontrol show job 4711",
        1,
        "here it is hold, release, requeue, move or prioritize; explain shows a job",
    ),
    ("sacct", 1, "here it is history"),
    ("seff 4711", 1, "there is no command 'seff': here it is efficiency"),
    ("sstat -j 4711", 1, "here it is efficiency"),
    ("sattach 4711", 1, "here it is logs -f, or shell"),
    ("qstat", 1, "here it is jobs"),
    ("jbos", 1, "did you mean jobs?"),
    ("queus", 1, "did you mean queues"),
    ("help", 0, "usage: kubectl fluxqueue"),
    ("help submit", 0, "usage: kubectl fluxqueue submit"),
    ("submit --help", 0, "example: kubectl fluxqueue submit"),
    ("--version", 0, "kubectl-fluxqueue "),
    # The queue
    ("jobs", 0, "POS"),
    ("queues", 0, "NAME STATE POLICY PRIORITY PENDING RUNNING NODES CORES"),
    ("queues -o wdie", 1, "takes wide, json"),
    ("jobs -q nigth", 1, "there is no queue 'nigth': did you mean night? there are default, night"),
    ("jobs --state PD", 1, "pd is not a state; there are pending"),
    ("jobs --state pending", 0, "job/waiting"),
    ("jobs -q", 1, "needs a value"),
    ("jobs --sort wiat", 1, "'wiat' is no field"),
    ("jobs -o jsno", 1, "-o/--output takes wide, json"),
    ("jobs --me", 0, "job/waiting"),
    ("jobs -u nobody", 0, "No resources found"),
    ("jobs -t PD", 1, "jobs does not understand '-t': it is --state, such as --state pending,running"),
    ("jobs --partition=night", 1, "it is -q/--queue"),
    ("jobs -j 4711", 1, "names take the place of job ids: give NAME alone"),
    ("jobs --start", 1, "the column START has it"),
    ("cancel -u ada", 1, "it is --all for all work of the namespace that you may cancel, or NAMEs"),
    ("cancel --signal=USR1 waiting", 1, "pods get SIGTERM"),
    ("history -S 2026-11-01", 1, "it is --since"),
    ("history -X", 1, "each workload is one line: leave it out"),
    (
        "submit -A physics --image x",
        1,
        "the account follows from the namespace: choose it by submit -n NAMESPACE, and leave it out",
    ),
    ("submit -w node-1 --image x", 1, "submit --dry-run -o yaml prints (nodeSelector, affinity)"),
    ("submit --wrap 'echo hi' --image x", 1, "write the command after --"),
    (
        "submit spaced.sh --image x --dry-run",
        0,
        "line 2 of spaced.sh is not read: options stand after #SBATCH and a space",
    ),
    ("jobs nobody", 1, '"nobody" not found'),
    ("jobs -n empty", 0, "fluxqueue does not manage namespace empty"),
    # A script of Slurm
    ("submit nothing.sh", 1, "cannot be read"),
    ("submit md.sh --dry-run", 0, "md-run"),
    ("submit md.sh --dry-run -o yaml", 0, "cpu: '2'"),
    ("submit md.sh --dry-run -o yaml -N 4", 0, "parallelism: 8"),
    ("submit md.sh --dry-run -N 3", 1, "8 pods (--pods) cannot be divided among 3 nodes (-N)"),
    ("submit mail.sh --image x", 1, "#SBATCH --mail-type is not offered: no mail is sent"),
    ("submit pbs.sh --image x", 1, "#PBS lines are not read"),
    # Typed options
    ("submit -N 2", 1, "submit needs --image"),
    ("submit -N two --image x", 1, "-N/--nodes is a whole number from 1 to 1000000: 'two' is none"),
    ("submit -N 2 --pods 5 --image x", 1, "ask for --pods 4 or --pods 6"),
    ("submit -m 512 --image x", 1, "write 512Mi or 512Gi"),
    ("submit -m 4GB --image x", 1, "'4GB' is no amount"),
    ("submit -c lots --image x", 1, "'lots' is no amount"),
    ("submit -t soon --image x", 1, "'soon' is not a duration: write 30 (minutes)"),
    ("submit -t 30 --image x --dry-run -o yaml", 0, "fluxqueue/duration: 30m"),
    ("submit -t 1-00:00:00 --image x --dry-run -o yaml", 0, "fluxqueue/duration: 86400s"),
    (
        "submit -p night --image x",
        1,
        "-p/--priority is a whole number from -1000000 to 1000000: 'night' is none",
    ),
    ("submit -q nigth --image x", 1, "there is no queue 'nigth': did you mean night?"),
    ("submit -J My_Job --image x", 1, "write my-job"),
    ("submit --env HOME --image x", 1, "--env is a name and a value"),
    ("submit --ntasks=4 --image x", 1, "submit does not understand '--ntasks=4': it is --pods"),
    ("submit --partition night --image x", 1, "it is -q/--queue"),
    ("submit --mail-type=END --image x", 1, "no mail is sent"),
    ("submit --imgae x", 1, "submit does not understand '--imgae': did you mean --image?"),
    ("jobs --quene night", 1, "jobs does not understand '--quene': did you mean --queue?"),
    ("submit -q night --image x -- solve", 0, "job.batch/solve-x created"),
    ("submit -t 0 --image x", 1, "'0' is no time at all"),
    ("submit -t UNLIMITED --image x", 1, "work without an end has no -t: leave it out"),
    ("submit -m 0 --image x", 1, "'0' of memory is none: write a size, or leave it out"),
    ("submit -c 64Gi --image x", 1, "'64Gi' are more cores than any node has"),
    ("submit -c 5000000 --image x", 1, "'5000000' are more cores than any node has"),
    ("submit -N 1_0 --image x", 1, "-N/--nodes is a whole number from 1 to 1000000: '1_0' is none"),
    ("submit -N 2000000 --image x", 1, "-N/--nodes is a whole number from 1 to 1000000: '2000000' is none"),
    (
        "submit -p 2147483648 --image x",
        1,
        "-p/--priority is a whole number from -1000000 to 1000000: '2147483648' is none",
    ),
    ("submit --gpu 1 --image x", 1, "submit does not understand '--gpu': it is --gpus or --gpu-resource"),
    ("submit --array 0-99999%1 -t 2h --image x", 1, "100000 rounds of 2h are longer than ten years"),
    ("prioritize waiting 1_0", 1, "'1_0' is none"),
    ("submit -g 2 --gpu-resource '' --image x", 1, "--gpu-resource is empty: give a value, or leave it out"),
    (
        "submit --gpu-resource amd.com/gpu --image x",
        1,
        "--gpu-resource says which GPUs -g counts: write -g N too",
    ),
    ("submit --topology '' --image x", 1, "--topology is empty"),
    ("submit --reservation '' --image x", 1, "--reservation is empty"),
    ("submit --after '' --image x", 1, "--after is empty"),
    ("submit --after afterok:123 --image x", 1, "--after: 'afterok:123' is not a dependency"),
    ("submit --begin tomorrow --image x", 1, "--begin: 'tomorrow' is not a time"),
    ("submit --deadline 18:00 --image x", 1, "--deadline: '18:00' is not a time"),
    ("submit --exclusive=user --image x", 1, "--exclusive takes no value: leave 'user' out"),
    ("submit -n 4 --image x", 1, "-n is the namespace: tasks are --pods 4"),
    (
        "submit both.sh --image x",
        1,
        "#SBATCH --mem: it is asked for by --mem-per-cpu too: leave one of them out",
    ),
    (
        "submit gpus.sh --image x",
        1,
        "#SBATCH --gpus: it is asked for by --gpus-per-task too: leave one of them out",
    ),
    (
        "submit kind.sh --image x",
        1,
        "'v100:2': a kind of GPU is a resource of its own: write #FQ -g 2 --gpu-resource NAME",
    ),
    ("submit gres.sh --image x", 1, "'gpu:2,nvme:1' are several resources: write gpu:N"),
    ("submit empty.sh --image x", 1, "#SBATCH --reservation: it is empty: give a value, or remove it"),
    ("jobs -u ''", 1, "-u is empty: give a value, or leave it out"),
    ("jobs --sort ''", 1, "--sort is empty: give a value, or leave it out"),
    ("wait waiting --timeout 0", 1, "'0' is no time at all: write at least 1s"),
    ("submit --array 0-99%10 --image x --dry-run -o yaml", 0, "completions: 100"),
    ("submit --array 1-100 --image x", 1, "tasks are numbered from 0: write 0-99"),
    # Steering
    ("explian waiting", 1, "did you mean explain?"),
    ("explain waiting -o yaml", 0, "reason: WaitingForNodes"),
    ("explain waiting -o json", 0, '"reason": "WaitingForNodes"'),
    ("explain pod-group/mesh", 0, "podgroup/mesh in namespace default waits"),
    ("explain podgroups/mesh", 0, "podgroup/mesh in namespace default waits"),
    ("explain pod-group/mehs", 1, "or a group that waits or runs, such as podgroup/NAME, is understood"),
    ("jobs pod-group/mesh", 0, "podgroup/mesh"),
    ("efficiency running", 0, "not known: this cluster serves no metrics"),
    ("efficiency waiting", 0, "nothing yet: none of its pods runs"),
    ("efficency running", 1, "did you mean efficiency?"),
    ("efficiency nobody", 1, '"nobody" not found'),
    ("shell waiting", 1, "kubectl fluxqueue wait job/waiting --for started waits for it"),
    ("shell running --rank 4", 1, "no pod of rank 4 of running runs now: there run 0"),
    ("shell running --rnak 4", 1, "did you mean --rank?"),
    ("hold", 1, "hold needs NAME, or a selection"),
    ("hold waiting", 0, "job/waiting held"),
    ("prioritize waiting high", 1, "'high' is none"),
    ("move waiting", 1, "move needs -q/--queue"),
    ("move waiting -q nite", 1, "there is no queue 'nite': did you mean night?"),
    ("move waiting -q night", 0, "job/waiting moved to queue night"),
    ("cancel -q ''", 1, "-q is empty: give a value, or leave it out"),
    ("cancel waiting", 0, "job/waiting cancelled"),
    # What became of it
    (
        "history waiting",
        1,
        "you may not read the history of the namespace default; an administrator gives you the right by",
    ),
    ("history job/", 1, "'job/' is no name of work: write lammps, or job/lammps"),
    (
        "history waiting running",
        1,
        "history does not understand 'running': an example is kubectl fluxqueue history",
    ),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PluginServer:
    """A cluster with a queue, work that runs and work that waits; it is what all commands ask."""
    server = PluginServer().has_jobs(
        fluxjob("running", state="Running", nodes="node-1"),
        fluxjob(
            "waiting",
            state="Pending",
            reason="WaitingForNodes",
            position=1,
            eta="2100-01-01T00:00:00Z",
            submittedBy="ada",
        ),
        fluxjob("mesh", kind="PodGroup", state="Pending", reason="WaitingForNodes", position=2),
    )
    server.has(f"/apis/{names.API_VERSION}/fluxqueues", make_queue("night"))
    server.has(f"/apis/{names.API_VERSION}/fluxjobs")
    server.has(f"/apis/{names.API_VERSION}/namespaces/empty/fluxjobs")
    server.objects["/api/v1/namespaces/empty"] = {"metadata": {"labels": {}}}
    server.objects[f"POST {JOBS}"] = {
        "metadata": {"name": "solve-x", "labels": {names.SEEN_LABEL: names.SEEN_VALUE}}
    }
    server.objects["POST /apis/authentication.k8s.io/v1/selfsubjectreviews"] = {
        "status": {"userInfo": {"username": "ada"}}
    }
    server.objects[f"{JOBS}/waiting"] = {
        "metadata": {"name": "waiting", "namespace": "default", "uid": "waiting"}
    }
    labels = {"batch.kubernetes.io/controller-uid": "running"}
    pod = {
        "metadata": {"name": "running-0-x", "uid": "p", "labels": labels},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }
    server.has(PODS).has(f"{PODS}?batch.kubernetes.io/controller-uid=running", pod)
    server.objects[f"{JOBS}/running"] = {
        "metadata": {"name": "running", "namespace": "default", "uid": "running"}
    }
    server.refusals["/token"] = ApiRefused(403, "Forbidden", "serviceaccounts is forbidden")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(sessions, "connection", lambda *_: Connection("https://x", namespace="default"))
    for verb in plugin.VERBS.values():
        module = importlib.import_module(f"fluxqueue.cli.verbs.{verb.module}")
        if hasattr(module, "ApiClient"):
            monkeypatch.setattr(module, "ApiClient", lambda *_: server)
    (tmp_path / "md.sh").write_text(SCRIPT)
    (tmp_path / "mail.sh").write_text("#!/bin/sh\n#SBATCH --mail-type=END\nrun\n")
    for name, line in {
        "both": "--mem=16G --mem-per-cpu=2G",
        "gpus": "--gpus=4 --gpus-per-task=1 -n 2",
        "kind": "--gpus=v100:2",
        "gres": "--gres=gpu:2,nvme:1",
        "empty": "--reservation=",
    }.items():
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/sh\n#SBATCH {line}\nrun\n")
    (tmp_path / "spaced.sh").write_text("#!/bin/sh\n# SBATCH -N 2\nrun\n")
    (tmp_path / "pbs.sh").write_text("#!/bin/sh\n#PBS -l nodes=2\nrun\n")
    monkeypatch.chdir(tmp_path)
    return server


@pytest.mark.parametrize(("typed", "code", "said"), TRANSCRIPT, ids=[line[0] for line in TRANSCRIPT])
def test_what_is_typed_is_read_or_refused_with_a_remedy(
    typed: str, code: int, said: str, server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = plugin.main(shlex.split(typed))
    except SystemExit as end:
        ended = int(end.code or 0)
    out, err = capsys.readouterr()
    assert said in " ".join((out + err).split())
    assert ended == code
    assert "Traceback" not in err
    if code:
        assert len(err.splitlines()) == 1 + err.count("note: ")
        assert not any(verb == "POST" for verb, _, _ in server.written)


def test_the_notes_of_a_script_are_on_standard_error(
    server: PluginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    del server
    assert plugin.main(["submit", "md.sh", "--dry-run"]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert notes == [
        (
            "note: line 5 of md.sh: #SBATCH --output has no effect: "
            "what pods print is read by kubectl fluxqueue logs"
        ),
        (
            "note: md.sh uses srun, which is of Slurm: each pod runs the script, "
            "and JOB_COMPLETION_INDEX is its rank"
        ),
    ]
