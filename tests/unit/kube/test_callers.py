"""Requests in the name of others: what they say of who asks, against a server that repeats it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from fluxqueue.kube.callers import CallerApis

SEEN = ("Authorization", "Impersonate-User", "Impersonate-Group")


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[CallerApis]:
    """Clients of a server that answers with what each request said of who asks;
    the program itself has a token.
    """

    async def repeat(request: web.Request) -> web.Response:
        return web.json_response({name: request.headers.getall(name, []) for name in SEEN})

    app = web.Application()
    app.router.add_get("/who", repeat)
    server = TestServer(app)
    await server.start_server()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "program", "user": {"token": "of-the-program"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "program"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with CallerApis.open(path, user_agent="test") as opened:
        yield opened
    await server.close()


async def said(callers: CallerApis, token: str = "", user: str = "") -> dict[str, list[str]]:
    api = callers.with_token(token) if token else callers.impersonating(user, ["team-a", "team-b"])
    found: dict[str, list[str]] = yaml.safe_load(await api.request("GET", "/who"))
    return found


async def test_a_person_s_token_is_all_that_is_sent(callers: CallerApis) -> None:
    assert await said(callers, token="of-alice") == {
        "Authorization": ["Bearer of-alice"],
        "Impersonate-User": [],
        "Impersonate-Group": [],
    }
    assert (await said(callers, token="of-bob"))["Authorization"] == ["Bearer of-bob"]


async def test_impersonation_has_the_program_s_own_token(callers: CallerApis) -> None:
    assert await said(callers, user="carol") == {
        "Authorization": ["Bearer of-the-program"],
        "Impersonate-User": ["carol"],
        "Impersonate-Group": ["team-a", "team-b"],
    }
