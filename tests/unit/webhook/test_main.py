import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.known_queues import KnownQueues
from fluxqueue.webhook.main import main
from fluxqueue.webhook.watch import watch_queues


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--port", "70000"], "'70000' is no port: 0 to 65535"),
        (["--port", "https"], "'https' is no port: 0 to 65535"),
        (["--drain-seconds", "soon"], "'soon' is no number of seconds: 0 to 3600"),
        (["--drain-seconds", "-1"], "'-1' is no number of seconds: 0 to 3600"),
        (["--look-seconds", "nan"], "'nan' is no number of seconds: 0 to 3600"),
        (["--max-pods", "0"], "'0' is no number of pods: 1 to 100000"),
        (["--max-pods", "100001"], "'100001' is no number of pods: 1 to 100000"),
        (["--topology-level", "rack"], "--topology-level: level 'rack' has no label"),
        (["--log-level", "loud"], "invalid choice: 'loud'"),
        (["--default-scheduler", "volcano"], "invalid choice: 'volcano'"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused_with_its_word(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert why in capsys.readouterr().err


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_help_does_not_load_the_server() -> None:
    shown = run(
        "import sys, contextlib\n"
        "from fluxqueue.webhook.main import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted({'fastapi', 'uvicorn', 'cryptography', 'structlog'} & set(sys.modules)))"
    )
    assert shown.splitlines()[-1] == "[]"
    assert "--job-controller USER" in shown


def test_the_server_never_loads_a_kubernetes_client_or_a_database_driver() -> None:
    shown = run(
        "import sys, fluxqueue.webhook.server\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'kubernetes', 'aiohttp', 'psycopg', 'grpc', 'procrastinate', 'numpy'}))"
    )
    assert shown.strip() == "[]"


@pytest.mark.parametrize(
    ("choices", "consequence"),
    [
        (None, "nobody is told"),
        (
            SchedulerChoices(SchedulerName.FLUXION),
            "fluxion binds pods that choose no scheduler, and nobody is told",
        ),
    ],
)
async def test_without_an_api_server_the_watch_retries_and_the_default_applies(
    choices: SchedulerChoices | None, consequence: str, tmp_path: Path
) -> None:
    known = KnownQueues()
    with capture_logs() as logs:
        watching = asyncio.create_task(watch_queues(known, choices, tmp_path / "missing"))
        async with asyncio.timeout(60):
            while not logs:
                await asyncio.sleep(0.01)
    assert not watching.done()
    watching.cancel()
    assert (logs[0]["event"], logs[0]["consequence"]) == (
        "queues.unknown",
        f"{consequence} that a queue does not exist",
    )
    assert choices is None or choices.of_pod("default", ObjectMeta(), None) is SchedulerName.FLUXION
    assert known.warning("label", "nigth") is None
