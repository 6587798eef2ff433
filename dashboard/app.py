"""The application: which address is answered by which page, and who must have signed in for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import structlog
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fluxqueue.dashboard.live import (
    GATHER_S,
    NO_ANSWER,
    PAGE_GATHER_S,
    STALE,
    Make,
    Streams,
    stream,
    updates_of,
)
from fluxqueue.dashboard.loop_shares import TooMany
from fluxqueue.dashboard.pages.doctor_page import doctor_page
from fluxqueue.dashboard.pages.history_page import history_page
from fluxqueue.dashboard.pages.job_log import job_log
from fluxqueue.dashboard.pages.job_page import ended_job_page, find_job, job_page
from fluxqueue.dashboard.pages.limits_page import limits_page
from fluxqueue.dashboard.pages.nodes_page import nodes_page
from fluxqueue.dashboard.pages.overview_page import overview_page
from fluxqueue.dashboard.pages.plan_page import plan_page
from fluxqueue.dashboard.pages.queue_page import queue_page
from fluxqueue.dashboard.pages.submit_page import Submitted, act, refused_page, submit_page
from fluxqueue.dashboard.people import NotKnown
from fluxqueue.dashboard.pod_logs import log_events
from fluxqueue.dashboard.protection import CSRF_FIELD, ProtectedApp, is_from_here, is_meant
from fluxqueue.dashboard.rendering import ENDED_PARAMETER, STATIC, asset, assets
from fluxqueue.dashboard.site import Asked, NoSuchPage, Site, render
from fluxqueue.dashboard.verbs import Refused, carry_out, read_change
from fluxqueue.dashboard.viewers import COOKIE, NoApi, Viewer, set_cookie

__all__ = ["PAGES", "PageAddress", "make_app"]

_LONGEST_QUERY: Final = 2_000
_LARGEST_FORM: Final = 65_536
_FORM_S: Final = 10.0
MOST_LOGS: Final = 100
_LOGS_OF_SESSION: Final = 3
_LOGS_OF_PERSON: Final = 9
"""Logs that are followed: each has a connection to the API server, and through it to a node."""
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}

log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PageAddress:
    """A page: its path, its name in the menu, what makes it, whether it is sent again when something changes,
    and what makes the part below that, which is not.
    """

    path: str
    name: str
    make: Make
    live: bool = True
    below: Callable[[Site, Asked], Awaitable[Markup]] | None = None


PAGES: Final[dict[str, PageAddress]] = {
    "overview": PageAddress("/", "Overview", overview_page),
    "queue": PageAddress("/queue", "Queue", queue_page),
    "nodes": PageAddress("/nodes", "Nodes", nodes_page),
    "plan": PageAddress("/plan", "Plan", plan_page),
    "submit": PageAddress("/submit", "Submit", submit_page, live=False),
    "limits": PageAddress("/limits", "Queues and accounts", limits_page),
    "history": PageAddress("/history", "History", history_page, live=False),
    "doctor": PageAddress("/doctor", "Doctor", doctor_page, live=False),
}
"""The pages of the menu."""

_JOB: Final = PageAddress("/jobs/{namespace}/{name}", "", job_page, below=job_log)


class _App:
    """The handlers of one site."""

    def __init__(self, site: Site, problem: Callable[[], str | None]) -> None:
        self._site = site
        self._problem = problem
        self._streams = Streams()
        self._logs = Streams(MOST_LOGS, of_session=_LOGS_OF_SESSION, of_person=_LOGS_OF_PERSON)

    def routes(self) -> list[Route]:
        pages = [Route(page.path, self._page(name, page)) for name, page in {**PAGES, "job": _JOB}.items()]
        return [
            *pages,
            Route("/jobs/{namespace}/{name}/log", self.follow_log),
            Route("/jobs/{namespace}/{name}/{verb}", self.change, methods=["POST"]),
            Route("/submit", self.submit, methods=["POST"]),
            Route("/live/{page}", self.follow),
            Route("/sign-in", self.show_sign_in),
            Route("/sign-in", self.sign_in, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
            Route("/static/{digest}/{name:path}", _static),
            Route("/healthz", _alive),
            Route("/readyz", self.ready),
        ]

    async def ready(self, _request: Request) -> Response:
        why = self._problem()
        return PlainTextResponse(why or "ok", status_code=200 if why is None else 503)

    def _page(self, name: str, page: PageAddress) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if (too_long := _too_long(request)) is not None:
                return too_long
            viewer = await self._site.door.viewer(request)
            if viewer is None:
                return _to_sign_in(request)
            if (why := self._problem()) is not None:
                return await self._shown(
                    viewer, "Not ready", render("message.html", sentence=f"{why}."), status=503
                )
            # the queue's address before there was an overview, which people have kept
            if name == "overview" and request.url.query:
                return RedirectResponse(f"{PAGES['queue'].path}?{request.url.query}", status_code=307)
            return await self._loaded(viewer, partial(self._noted, viewer, request, name, page))

        return answer

    async def _loaded(self, viewer: Viewer, make: Callable[[], Awaitable[Response]]) -> Response:
        """Make a page in the turn of who asks for it."""
        try:
            return await self._site.loads.load(viewer.person.party, make)
        except TooMany as error:
            return _refused(429, str(error))

    async def _noted(self, viewer: Viewer, request: Request, name: str, page: PageAddress) -> Response:
        said = self._site.door.sessions.take_note(viewer.session)
        return await self._made(viewer, request, name, page, said=said)

    async def _made(
        self,
        viewer: Viewer,
        request: Request,
        name: str,
        page: PageAddress,
        *,
        said: str = "",
        problem: str = "",
    ) -> Response:
        """Return a page, with a sentence above it: what was done, or why not."""
        version = self._site.state.version
        asked = await self._site.ask(viewer, dict(request.query_params), dict(request.path_params))
        if asked.visible.unanswered:
            return await self._no_answer(viewer)
        final = False
        try:
            try:
                content = await page.make(self._site, asked)
            except NoSuchPage:
                if name != "job" or ENDED_PARAMETER not in asked.parameters:
                    raise
                content, final = await ended_job_page(self._site, asked), True
        except NoSuchPage as error:
            return await self._shown(
                viewer, "Not found", render("message.html", sentence=str(error)), status=404, problem=problem
            )
        version = version if content.version is None else content.version
        live = (
            f"/live/{name}?{urlencode({**asked.parameters, **asked.path, 'version': version})}"
            if page.live and not final
            else ""
        )
        return await self._shown(
            viewer,
            content.title,
            content.html,
            here=page.path,
            live=live,
            said=said,
            problem=problem,
            stale=self._site.stale(),
            below=await page.below(self._site, asked) if page.below is not None and not final else "",
        )

    async def _no_answer(self, viewer: Viewer) -> Response:
        sentence = f"{NO_ANSWER}, so it is not known what you may see: load the page again in some seconds."
        return await self._shown(viewer, "No answer", render("message.html", sentence=sentence), status=503)

    async def _shown(
        self, viewer: Viewer, title: str, html: Markup, *, status: int = 0, **values: Any
    ) -> Response:
        known = {"here": "", "live": "", "said": "", "problem": "", "stale": False, "below": "", **values}
        hidden = await self._site.hidden(viewer)
        pages = [(page.path, page.name) for name, page in PAGES.items() if name not in hidden]
        text = render(
            "layout.html", title=title, content=html, viewer=viewer, pages=pages, old=STALE, **known
        )
        response = HTMLResponse(text, status_code=status or (409 if known["problem"] else 200))
        set_cookie(response, viewer)
        return response

    async def _meant(self, request: Request) -> tuple[Asked, dict[str, str]] | Response:
        """Return who sent a form of ours, and its fields; or why nothing is done by it."""
        viewer = await self._site.door.viewer(request)
        if viewer is None:
            return _to_sign_in(request)
        form = await _form(request)
        if not is_meant(request.headers, viewer.session, form.get(CSRF_FIELD)):
            return _problem(
                403,
                "this form was not sent by the dashboard, or by a session that is over: load the page again",
            )
        asked = await self._site.ask(viewer, {}, dict(request.path_params))
        return await self._no_answer(viewer) if asked.visible.unanswered else (asked, form)

    async def change(self, request: Request) -> Response:
        """Carry out a verb."""
        read = await self._meant(request)
        if isinstance(read, Response):
            return read
        asked, form = read
        viewer = asked.viewer
        try:
            job = find_job(self._site, asked)
            if form.get("uid") != job.metadata.uid:
                raise Refused("this is another job than the one the page showed: look at it again")
            said = await carry_out(
                self._site.door.api(viewer), job, read_change(request.path_params["verb"], form)
            )
        except NoSuchPage as error:
            return await self._shown(
                viewer, "Not found", render("message.html", sentence=str(error)), status=404
            )
        except (Refused, NoApi) as error:
            return await self._loaded(
                viewer, partial(self._made, viewer, request, "job", _JOB, problem=str(error))
            )
        self._site.door.sessions.leave_note(viewer.session, f"{said[0].upper()}{said[1:]}")
        where = "/".join(quote(request.path_params[part], safe="") for part in ("namespace", "name"))
        return RedirectResponse(f"/jobs/{where}", status_code=303)

    async def submit(self, request: Request) -> Response:
        """Write, try or create a Job."""
        read = await self._meant(request)
        if isinstance(read, Response):
            return read
        asked, form = read
        viewer = asked.viewer
        if self._problem() is not None:
            return await self._no_answer(viewer)
        return await self._loaded(viewer, partial(self._submitted, asked, form))

    async def _submitted(self, asked: Asked, form: dict[str, str]) -> Response:
        viewer = asked.viewer
        here = PAGES["submit"].path
        try:
            done, problem = await act(self._site, asked, form), ""
        except (Refused, NoApi) as error:
            done, problem = (
                refused_page(self._site, asked, form),
                f"{str(error)[:1].upper()}{str(error)[1:]}.",
            )
        if isinstance(done, Submitted):
            self._site.door.sessions.leave_note(viewer.session, done.sentence)
            return RedirectResponse(
                f"{PAGES['queue'].path}?{urlencode({'namespace': done.namespace})}", status_code=303
            )
        return await self._shown(viewer, done.title, done.html, here=here, problem=problem)

    async def follow(self, request: Request) -> Response:
        """Send changes of a page."""
        if (too_long := _too_long(request)) is not None:
            return too_long
        viewer = await self._site.door.viewer(request)
        name = request.path_params["page"]
        page = {**PAGES, "job": _JOB}.get(name)
        if viewer is None or page is None or not page.live:
            return _refused(
                401 if viewer is None else 404, "sign in again" if viewer is None else "there is no such page"
            )
        parameters = dict(request.query_params)
        if (why := self._problem()) is not None:
            return _refused(503, why)
        asked = await self._site.ask(viewer, parameters, parameters if name == "job" else {})
        updates = updates_of(name, page.make, asked, self._site.state.version)
        try:
            self._streams.enter(viewer.session)
        except TooMany as error:
            return _refused(429, str(error))
        events = stream(self._site, asked, updates, gather_s=GATHER_S if name == "queue" else PAGE_GATHER_S)
        return _EventStream(events, lambda: self._streams.leave(viewer.session))

    async def follow_log(self, request: Request) -> Response:
        """Send what a pod prints."""
        if (too_long := _too_long(request)) is not None:
            return too_long
        viewer = await self._site.door.viewer(request)
        if viewer is None:
            return _refused(401, "sign in again")
        if (why := self._problem()) is not None:
            return _refused(503, why)
        asked = await self._site.ask(viewer, dict(request.query_params), dict(request.path_params))
        try:
            self._logs.enter(viewer.session)
        except TooMany as error:
            return _refused(429, str(error))
        return _EventStream(log_events(self._site, asked), lambda: self._logs.leave(viewer.session))

    async def no_page(self, request: Request, _error: Exception) -> Response:
        """Say that there is no such page, in the design."""
        sentence = render("message.html", sentence="There is no such page.")
        viewer = await self._site.door.viewer(request)
        if viewer is None:
            return _alone("Not found", sentence, status=404)
        return await self._shown(viewer, "Not found", sentence, status=404)

    async def show_sign_in(self, request: Request) -> Response:
        """Show the form, or the page that was wanted if somebody is signed in."""
        if await self._site.door.viewer(request) is not None:
            return RedirectResponse(_safe(request.query_params.get("next", "")), status_code=303)
        return _sign_in_page(_safe(request.query_params.get("next", "")))

    async def sign_in(self, request: Request) -> Response:
        """Begin a session."""
        form = await _form(request)
        wanted = _safe(form.get("next", ""))
        if not is_from_here(request.headers):
            return _problem(403, "sign in on the page of the dashboard itself")
        try:
            viewer = await self._site.door.sign_in(
                form.get("token", "").strip(), request.client.host if request.client is not None else ""
            )
        except NotKnown as error:
            return _sign_in_page(wanted, f"{str(error)[0].upper()}{str(error)[1:]}.", 401)
        log.info("session.begun", user=viewer.person.username)
        response = RedirectResponse(wanted, status_code=303)
        set_cookie(response, viewer)
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        session = self._site.door.sessions.find(request.cookies.get(COOKIE, ""))
        form = await _form(request)
        if session is not None:
            if not is_meant(request.headers, session, form.get(CSRF_FIELD)):
                return _problem(403, "this form was not sent by the dashboard: load the page again")
            self._site.door.sessions.end(session)
            log.info("session.ended", user=session.person.username)
        response = RedirectResponse("/sign-in", status_code=303)
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return response


def make_app(site: Site, problem: Callable[[], str | None]) -> ASGIApp:
    """Make the application.

    Parameters
    ----------
    site
        What its pages are made from.
    problem
        Return why nothing can be shown now; None if it can.
    """
    app = _App(site, problem)
    errors: dict[Any, Any] = {_BadForm: _bad_form, 404: app.no_page, Exception: _failed}
    return ProtectedApp(Starlette(routes=app.routes(), exception_handlers=errors))


class _EventStream(StreamingResponse):
    """Server-sent events; however it ends, also before the first event, they are closed and that is told."""

    def __init__(self, events: AsyncGenerator[bytes, None], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._events = events
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the browser goes away."""
        try:
            async with aclosing(self._events):  # who reads nothing leaves them in the middle
                await super().__call__(scope, receive, send)
        finally:
            self._ended()


class _BadForm(Exception):
    """A form that cannot be read."""


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a small form."""
    if not _is_form(request.headers):
        raise _BadForm("send a form of at most 64 KiB")
    try:
        async with asyncio.timeout(_FORM_S):
            body = (await request.body()).decode()
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=20))
    except (UnicodeDecodeError, ValueError, ClientDisconnect, TimeoutError):
        raise _BadForm("the form cannot be read") from None


def _is_form(headers: Headers) -> bool:
    length = headers.get("content-length", "")
    kind = headers.get("content-type", "").partition(";")[0].strip()
    return (
        kind == "application/x-www-form-urlencoded"
        and length.isdigit()
        and len(length) < 8
        and int(length) <= _LARGEST_FORM
    )


def _bad_form(_request: Request, error: Exception) -> Response:
    answer = _problem(400, str(error))
    answer.headers["Connection"] = "close"  # what is left of the form would be read as the next request
    return answer


def _failed(_request: Request, _error: Exception) -> Response:
    """Answer where there is a fault of this program; the server logs it."""
    return _problem(
        500, "this could not be shown or done because of a fault of the dashboard: its log says which"
    )


def _refused(status: int, sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status_code=status)


def _problem(status: int, sentence: str) -> Response:
    """Answer a person who loads a page: with the way back."""
    words = f"{sentence[0].upper()}{sentence[1:]}."
    return _alone("Not possible", render("message.html", sentence=words), status=status)


async def _alive(_request: Request) -> Response:
    return PlainTextResponse("ok")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in assets() or asset(name) != request.url.path:
        return _refused(404, "there is no such file: load the page again")
    return FileResponse(STATIC / name, headers=_FOR_EVER)


def _safe(path: str) -> str:
    r"""Return a path of this site; whatever a browser could read as another site (``//``, ``/\``) is the
    first page.
    """
    fine = (
        path.startswith("/")
        and not path.startswith(("//", "/\\"))
        and path.isprintable()
        and len(path) < 2_000
    )
    return path if fine and "\\" not in path else "/"


def _too_long(request: Request) -> Response | None:
    """Return the answer to an address that is too long; None if it is not."""
    if len(request.url.query) <= _LONGEST_QUERY:
        return None
    longest = max(request.query_params.items(), key=lambda pair: len(pair[1]), default=("", ""))[0]
    return _problem(
        414,
        f"the parameters of this address have {len(request.url.query)} characters, and no more than "
        f"{_LONGEST_QUERY} are read: shorten {longest[:20]!r}",
    )


def _to_sign_in(request: Request) -> Response:
    wanted = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return RedirectResponse(
        f"/sign-in?{urlencode({'next': wanted if request.method == 'GET' else '/'})}", status_code=303
    )


def _sign_in_page(wanted: str, problem: str = "", status: int = 200) -> Response:
    return _alone("Sign in", render("sign_in.html", next=wanted), problem, status)


def _alone(title: str, html: Markup, problem: str = "", status: int = 200) -> Response:
    """Return a page for somebody who has not signed in."""
    values: dict[str, Any] = {"here": "", "live": "", "said": "", "pages": [], "viewer": None, "stale": False}
    values["below"] = ""
    return HTMLResponse(
        render("layout.html", title=title, content=html, problem=problem, **values), status_code=status
    )
