"""The HTTP application of the REST service: requests with a bearer token become commands of Flux.

Every path under ``/v1`` requires the token. It is read from its file on each request, so a changed Secret
takes effect at once. The probes and the OpenAPI description are public, because they contain nothing about
jobs. Errors are a sentence in ``detail`` with a matching code: 404 for an unknown job, 409 if Flux refuses,
422 for an invalid request, 503 while the instance does not respond.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers

from fluxqueue.api.names import OPERATOR_TOKEN_HEADER
from fluxqueue.rest.bounded import BoundedRequests
from fluxqueue.rest.commands import (
    Flux,
    FluxFailed,
    FluxMissing,
    NoSuchJob,
)
from fluxqueue.rest.readiness import FluxReadiness
from fluxqueue.rest.submissions import FluxSubmission, InvalidWord

__all__ = ["create_app"]

_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_LONGEST_SENTENCE = 2000
_bearer = HTTPBearer(auto_error=False, description="The token in the Secret of this MiniCluster.")


class SubmitRequest(BaseModel):
    """A job to be submitted."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = Field(
        min_length=1, max_length=4096, description="The program and its arguments; no shell interprets them."
    )
    nodes: int | None = Field(None, ge=1, le=1_000_000)
    tasks: int | None = Field(None, ge=1, le=100_000_000)
    cores_per_task: int | None = Field(None, ge=1, le=100_000)
    gpus_per_task: int | None = Field(None, ge=1, le=10_000)
    duration_s: float | None = Field(None, gt=0, le=3.2e8, description="Time limit in seconds.")
    environment: dict[str, str] = Field(default_factory=dict, max_length=1024)
    working_directory: str | None = Field(None, min_length=1, max_length=4096)
    name: str | None = Field(None, min_length=1, max_length=255)
    urgency: int | None = Field(None, ge=0, le=31)


class InvalidRequest(BaseModel):
    """Why a request is invalid."""

    detail: str


class Submitted(BaseModel):
    """A job that was accepted."""

    id: str


class Nodes(BaseModel):
    """Nodes in one state."""

    state: str
    nodes: list[str]
    cores: int
    gpus: int


def create_app(flux: Flux, token_file: Path, size: int | None = None) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    flux
        The instance.
    token_file
        File with the bearer token.
    size
        Number of brokers of the instance, for the description.

    Returns
    -------
    FastAPI
        Serving ``/v1/jobs``, ``/v1/nodes``, ``/healthz``, ``/readyz``, ``/docs`` and ``/openapi.json``.
    """
    app = FastAPI(
        title="Flux instance",
        description=f"Jobs of one Flux instance{f' of {size} brokers' if size else ''}.",
        version="1",
    )
    described = [Depends(_bearer)]
    invalid: dict[int | str, dict[str, Any]] = {422: {"model": InvalidRequest}}
    app.include_router(_job_routes(flux), dependencies=described, responses=invalid)
    app.include_router(_node_routes(flux), dependencies=described)
    app.add_middleware(BoundedRequests, refusal=_token_check(token_file))
    app.include_router(_probes(flux))
    for error, code in ((NoSuchJob, 404), (FluxFailed, 409), (InvalidWord, 422), (FluxMissing, 503)):
        app.add_exception_handler(error, _error_handler(code))
    app.exception_handler(RequestValidationError)(_invalid)
    return app


def _token_check(token_file: Path) -> Callable[[Headers], tuple[int, str, dict[str, str]] | None]:
    """Return the check of a request's token."""

    def refusal(headers: Headers) -> tuple[int, str, dict[str, str]] | None:
        try:
            token = token_file.read_text().strip()
        except OSError:
            return 503, "the token of this service does not exist yet", {}
        # The API server's proxy removes Authorization, so whoever comes through it has the token in a header
        # of its own.
        scheme, _, given = headers.get(
            "authorization", f"bearer {headers.get(OPERATOR_TOKEN_HEADER, '')}"
        ).partition(" ")
        if (
            scheme.lower() != "bearer"
            or not token
            or not hmac.compare_digest(given.strip().encode(), token.encode())
        ):
            return 401, "a bearer token is required: it is in the Secret of this MiniCluster", _CHALLENGE
        return None

    return refusal


def _job_routes(flux: Flux) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/jobs", status_code=201)
    async def submit(job: SubmitRequest) -> Submitted:
        """Submit a job."""
        return Submitted(id=await flux.submit(FluxSubmission(**job.model_dump())))

    @router.get("/v1/jobs")
    async def list_jobs(
        active: Annotated[bool, Query(description="Only jobs that have not ended.")] = False,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> list[dict[str, Any]]:
        """List jobs, the newest first."""
        return await flux.jobs(active_only=active, limit=limit)

    @router.get("/v1/jobs/{jobid}")
    async def show(jobid: str) -> dict[str, Any]:
        """Show a job."""
        return await flux.job(jobid)

    @router.delete("/v1/jobs/{jobid}", status_code=202)
    async def cancel(jobid: str) -> dict[str, str]:
        """Cancel a job."""
        await flux.cancel(jobid)
        return {"id": jobid}

    @router.get("/v1/jobs/{jobid}/output", response_class=StreamingResponse)
    async def output(
        jobid: str, follow: Annotated[bool, Query(description="Continue until the job ends.")] = False
    ) -> StreamingResponse:
        """Stream the output of a job, standard output and error together."""
        # An unknown job must get a 404 before the stream begins.
        await flux.job(jobid)
        if follow:
            pieces = flux.follow(jobid)
        else:
            pieces = await _begun(flux.output(jobid))
        return StreamingResponse(
            _closing(pieces), media_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"}
        )

    return router


def _node_routes(flux: Flux) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/nodes")
    async def nodes() -> list[Nodes]:
        """List the nodes of the instance by state."""
        return [
            Nodes(state=group.state, nodes=list(group.hosts), cores=group.cores, gpus=group.gpus)
            for group in await flux.nodes()
        ]

    return router


def _probes(flux: Flux) -> APIRouter:
    router = APIRouter()
    readiness = FluxReadiness(flux)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Report that this service runs."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        """Report whether a command of Flux was answered."""
        problem = await readiness.problem()
        return JSONResponse({"status": problem or "ok"}, 503 if problem else 200)

    return router


def _error_handler(code: int) -> Any:
    async def handle(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, code)

    return handle


async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
    """Name the fields and what is wrong with them.
    What was sent is left out: JSON cannot express each value that Python reads from it.
    """
    problems = (
        f"{'.'.join(map(str, each['loc'][1:])) or each['loc'][0]}: {each['msg']}" for each in error.errors()
    )
    sentence = "; ".join(problems).encode(errors="backslashreplace").decode()
    return JSONResponse({"detail": sentence[:_LONGEST_SENTENCE]}, 422)


async def _begun(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Return the same pieces once the first is there: an error before it still gets an answer of its own."""
    first = await anext(pieces, b"")

    async def again() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return again()


async def _closing(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Yield the same pieces.
    When the reader disconnects, the generator is closed at once, not when it is collected.
    """
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield piece
