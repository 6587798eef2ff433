import pytest

from fluxqueue.api import names
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.request_options import add_request_options, header_options, submission
from fluxqueue.cli.scripts import Script
from fluxqueue.cli.submissions import Submission
from fluxqueue.cli.usage_errors import UsageParser


def parsed(*words: str) -> Submission:
    parser = UsageParser(prog="kubectl fluxqueue submit")
    add_request_options(parser)
    return submission(vars(parser.parse_args(words)), ("run",), "run")


def test_only_what_is_given_is_asked_for() -> None:
    assert parsed("--image", "x") == Submission("x", ("run",), stem="run")


def test_every_option_arrives() -> None:
    words = (
        "--image x -N 4 --pods 8 -c 500m -m 4Gi -g 2 --gpu-resource amd.com/gpu -t 30m -q night -p -5 "
        "--after ok:job/a --begin +2h"
    )
    more = (
        "--deadline +6h --reservation r --topology rack --exclusive -J solve --env A=1 --env B= --label k=v "
        "--retries 2 --keep 1h"
    )
    asked = parsed(*words.split(), *more.split(), "--prefer-topology", "block", "--service-account", "robot")
    assert (asked.nodes, asked.pods, asked.cpu, asked.memory, asked.gpus, asked.gpu_resource) == (
        4,
        8,
        "500m",
        "4Gi",
        2,
        "amd.com/gpu",
    )
    assert (asked.name, asked.retries, asked.keep_s, asked.service_account) == ("solve", 2, 3600, "robot")
    assert asked.annotations == {
        names.DURATION_ANNOTATION: "30m",
        names.PRIORITY_ANNOTATION: "-5",
        names.AFTER_ANNOTATION: "ok:job/a",
        names.BEGIN_ANNOTATION: "+2h",
        names.DEADLINE_ANNOTATION: "+6h",
        names.RESERVATION_ANNOTATION: "r",
        names.REQUIRED_TOPOLOGY_ANNOTATION: "rack",
        names.PREFERRED_TOPOLOGY_ANNOTATION: "block",
        names.EXCLUSIVE_ANNOTATION: "true",
    }
    assert asked.labels == {"k": "v", names.QUEUE_LABEL: "night"}
    assert asked.environment == {"A": "1", "B": ""}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-N", "0"], "-N/--nodes is a whole number from 1 to 1000000: '0' is none"),
        (["-p", "high"], "-p/--priority is a whole number from -1000000 to 1000000: 'high' is none"),
        (["-c", "many"], "-c/--cpus: 'many' is no amount: write 4, 500m or 16Gi"),
        (
            ["-m", "512"],
            "-m/--memory: '512' of memory is less than 1Mi, in which nothing runs: write 512Mi or 512Gi",
        ),
        (["-J", "My_Solver"], "-J/--name: 'My_Solver' is no name that Kubernetes takes: write my-solver"),
        (["-t", "soon"], "'soon' is not a duration"),
        (["--env", "A"], "--env is a name and a value, such as --env NAME=VALUE: 'A' is none"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("--image", "x", *words)
    assert message in capsys.readouterr().err


def test_a_time_without_a_unit_is_minutes_as_in_slurm_and_flux() -> None:
    asked = parsed("--image", "x", "-t", "30", "--keep", "1-00:00:00")
    assert (asked.annotations[names.DURATION_ANNOTATION], asked.keep_s) == ("30m", 86_400)


def test_an_image_is_needed() -> None:
    with pytest.raises(ClusterError, match="submit needs --image"):
        parsed()


def test_lines_of_a_script_have_the_same_options() -> None:
    assert header_options(Script("s", (), ("-N", "4", "--env", "A=1")), "s.sh") == {
        "nodes": 4,
        "env": [("A", "1")],
    }
    with pytest.raises(
        ClusterError, match=r"the #FQ lines of s\.sh: submit does not understand '--kubeconfig x'"
    ):
        header_options(Script("s", (), ("--kubeconfig", "x")), "s.sh")
    with pytest.raises(ClusterError, match=r"the #FQ lines of s\.sh: -N/--nodes is a whole number"):
        header_options(Script("s", (), ("-N", "x")), "s.sh")
