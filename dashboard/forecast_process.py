"""Forecasts for one Job in a process of its own, so that no page waits for it and its memory goes back at its
end.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from datetime import datetime

from fluxqueue.api.jobs import Job
from fluxqueue.queue.simulator.job_forecasts import ClusterObjects, JobForecast, forecast_job

__all__ = ["ForecastFailed", "forecast_apart"]


class ForecastFailed(Exception):
    """The process ended without an answer."""


async def forecast_apart(objects: ClusterObjects, job: Job, now: datetime) -> JobForecast:
    """Forecast what would become of a Job, in another process, which is killed if this is cancelled.

    Raises
    ------
    ForecastFailed
        It has no answer.
    """
    question = await asyncio.to_thread(pickle.dumps, (objects, job, now))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        answer, _ = await process.communicate(question)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode or not answer:
        raise ForecastFailed(f"the process that forecasts ended with {process.returncode}")
    found: JobForecast = pickle.loads(answer)  # noqa: S301  # of our own program
    return found


def _main() -> None:
    objects, job, now = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # of the program that started this
    sys.stdout.buffer.write(pickle.dumps(asyncio.run(forecast_job(objects, job, now))))


if __name__ == "__main__":
    _main()
