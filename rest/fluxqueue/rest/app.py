"""The HTTP side: requests with a bearer token in, commands of Flux out.

Every path under ``/v1`` asks for the token; it is read from its file at each request, so a Secret that is changed counts at once. The
probes and the description (OpenAPI) are open: they tell nothing about jobs. Errors are a sentence in ``detail``, with the code that fits:
404 for a job that is not there, 409 where Flux refuses, 422 for a request that cannot be meant, 503 while the instance does not answer.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, status
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from fluxqueue.rest.commands import Flux, FluxFailed, FluxMissing, InvalidWord, Submission, UnknownJob

__all__ = ["MAX_BODY_BYTES", "create_app"]

MAX_BODY_BYTES = 2**20
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_bearer = HTTPBearer(auto_error=False, description="The token in the Secret of this MiniCluster.")


class JobRequest(BaseModel):
    """A job to be run."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = Field(min_length=1, max_length=4096, description="The program and its arguments; no shell reads them.")
    nodes: int | None = Field(None, ge=1, le=1_000_000)
    tasks: int | None = Field(None, ge=1, le=100_000_000)
    cores_per_task: int | None = Field(None, ge=1, le=100_000)
    gpus_per_task: int | None = Field(None, ge=1, le=10_000)
    duration_s: float | None = Field(None, gt=0, le=3.2e8, description="Time limit in seconds.")
    environment: dict[str, str] = Field(default_factory=dict, max_length=1024)
    working_directory: str | None = Field(None, min_length=1, max_length=4096)
    name: str | None = Field(None, min_length=1, max_length=255)
    urgency: int | None = Field(None, ge=0, le=31)


class Submitted(BaseModel):
    """A job that was taken."""

    id: str


class Nodes(BaseModel):
    """Nodes in one state."""

    state: str
    nodes: list[str]
    cores: int
    gpus: int


def create_app(flux: Flux, token_file: Path, size: int | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    flux
        The instance.
    token_file
        Holding the bearer token.
    size
        Brokers of the instance, to be told.

    Returns
    -------
    FastAPI
        Serving ``/v1/jobs``, ``/v1/nodes``, ``/healthz``, ``/readyz``, ``/docs`` and ``/openapi.json``.
    """
    app = FastAPI(title="Flux instance", description=f"Jobs of one Flux instance{f' of {size} brokers' if size else ''}.", version="1")

    def authorised(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
        try:
            token = token_file.read_text().strip()
        except OSError:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, "the token of this service is not there yet") from None
        if given is None or not token or not hmac.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(
                status.HTTP_401_UNAUTHORIZED, "a bearer token is needed: it stands in the Secret of this MiniCluster", _CHALLENGE
            )

    async def bounded(request: Request) -> None:
        length = request.headers.get("content-length", "")
        if request.method == "POST" and (not length.isdecimal() or int(length) > MAX_BODY_BYTES):
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, f"a request says its length, at most {MAX_BODY_BYTES} bytes")

    guarded = [Depends(authorised), Depends(bounded)]

    @app.post("/v1/jobs", status_code=201, dependencies=guarded)
    async def submit(job: JobRequest) -> Submitted:
        """Submit a job."""
        return Submitted(id=await flux.submit(Submission(**job.model_dump())))

    @app.get("/v1/jobs", dependencies=guarded)
    async def list_jobs(
        active: Annotated[bool, Query(description="Only those that have not ended.")] = False,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> list[dict[str, Any]]:
        """List jobs, the youngest first."""
        return await flux.jobs(active_only=active, limit=limit)

    @app.get("/v1/jobs/{jobid}", dependencies=guarded)
    async def show(jobid: str) -> dict[str, Any]:
        """Show a job."""
        return await flux.job(jobid)

    @app.delete("/v1/jobs/{jobid}", status_code=202, dependencies=guarded)
    async def cancel(jobid: str) -> dict[str, str]:
        """Cancel a job."""
        await flux.cancel(jobid)
        return {"id": jobid}

    @app.get("/v1/jobs/{jobid}/output", dependencies=guarded, response_class=StreamingResponse)
    async def output(jobid: str, follow: Annotated[bool, Query(description="Go on until the job ends.")] = False) -> StreamingResponse:
        """Stream what a job writes, standard output and error together."""
        # Asked before anything is sent, so that a job that is not there is an answer of 404 and not a broken stream.
        await flux.job(jobid)
        pieces = flux.follow(jobid) if follow else flux.output(jobid)
        return StreamingResponse(_closing(pieces), media_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})

    @app.get("/v1/nodes", dependencies=guarded)
    async def nodes() -> list[Nodes]:
        """List the nodes of the instance by state."""
        return [Nodes(state=group.state, nodes=list(group.hosts), cores=group.cores, gpus=group.gpus) for group in await flux.nodes()]

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether this service runs."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """Whether the instance answers."""
        alive = await flux.alive()
        return JSONResponse({"status": "ok" if alive else "the instance does not answer yet"}, 200 if alive else 503)

    for error, code in ((UnknownJob, 404), (FluxFailed, 409), (InvalidWord, 422), (FluxMissing, 503)):
        app.add_exception_handler(error, _teller(code))
    return app


def _teller(code: int) -> Any:
    async def tell(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, code)

    return tell


async def _closing(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """The same pieces; when the reader goes, what makes them ends at once and not when it is collected."""
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield piece
