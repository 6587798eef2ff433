"""Submit: a small form that writes a Job, the Job as YAML, and what would become of it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from fluxqueue.api.formatting import format_nodes
from fluxqueue.dashboard.site import Asked, Content, Site, render
from fluxqueue.dashboard.submissions import FIELDS, Trial, create_job, manifest_of_form, read_manifest
from fluxqueue.dashboard.verbs import Refused

__all__ = ["Submitted", "act", "refused_page", "submit_page"]

_SHOWN: Final = 20
_DEFAULTS: Final = {"image": "", "nodes": "1", "cpus": "1", "time": "30m"}


@dataclass(frozen=True, slots=True)
class Submitted:
    """The Job was created; the sentence says so."""

    namespace: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Delay:
    """Work that would start later: both times, None: never."""

    name: str
    start: datetime
    later: datetime | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a trial found, as the page shows it."""

    trial: Trial
    start: datetime | None = None
    deadline: datetime | None = None
    now: bool = False
    nodes: str = ""
    delays: Sequence[_Delay] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class _Filled:
    """What the fields have."""

    form: Mapping[str, str] = field(default_factory=dict)
    manifest: str = ""
    outcome: _Outcome | None = None
    written: str = ""
    """Digests of the fields and of the Job as they wrote it; empty: they did not."""

    @property
    def page(self) -> str:
        """What tells this page from all others, as long as it is worked on."""
        return self.form.get("page", "") or secrets.token_hex(8)


async def submit_page(site: Site, asked: Asked) -> Content:
    """Return the page with an empty form, for the namespace that is looked at."""
    seen = _namespaces(site, asked)
    chosen = asked.parameters.get("namespace", "") or (seen[0] if seen else "default")
    return _content(site, asked, _Filled({**_DEFAULTS, "namespace": chosen}))


async def act(site: Site, asked: Asked, form: Mapping[str, str]) -> Content | Submitted:
    """Do what the pressed button says: write the Job of the form, try a Job, or create it; return the page,
    or that it was created.

    Raises
    ------
    Refused
        It cannot be done.
    NoApi
        Nothing may be done in the name of the person.
    """
    action, manifest = form.get("action", ""), form.get("manifest", "")
    fields_then, _, manifest_then = form.get("written", "").partition(":")
    if action == "write":
        if manifest.strip() and _digest(manifest) != manifest_then:
            raise Refused("the Job was changed by hand: clear it, so that the fields can write it anew")
        made = manifest_of_form(form)
        return _content(
            site, asked, _Filled(form, made, written=f"{_digest_of_fields(form)}:{_digest(made)}")
        )
    if fields_then and _digest_of_fields(form) != fields_then:
        raise Refused("the fields have changed since they wrote the Job: write it again, or set them back")
    read = await read_manifest(manifest)
    api = site.door.api(asked.viewer)
    if action == "create":
        return Submitted(read["metadata"]["namespace"], await create_job(api, read, form.get("page", "")))
    trial = await site.trials.run(asked.viewer.person.username, api, read, site.clock(), len(site.state.jobs))
    return _content(site, asked, _Filled(form, manifest, _outcome(trial), form.get("written", "")))


def refused_page(site: Site, asked: Asked, form: Mapping[str, str]) -> Content:
    """Return the page with what was typed, for a sentence above it."""
    return _content(site, asked, _Filled(form, form.get("manifest", ""), written=form.get("written", "")))


def _content(site: Site, asked: Asked, filled: _Filled) -> Content:
    queues = (
        sorted(queue.metadata.name for queue in site.state.queues.list())[:1_000]
        if asked.visible.queues
        else []
    )
    html = render(
        "submit.html",
        form={name: filled.form.get(name, "") for name in (*FIELDS, "namespace", "command")},
        manifest=filled.manifest,
        outcome=filled.outcome,
        written=filled.written,
        page=filled.page,
        queues=queues,
        namespaces=_namespaces(site, asked),
        csrf=asked.viewer.session.csrf,
    )
    return Content("Submit", html)


def _digest(text: str) -> str:
    """Return a short form of a text, to see whether it has changed.
    Browsers send lines with carriage returns.
    """
    return hashlib.sha256(text.replace("\r\n", "\n").strip().encode(errors="replace")).hexdigest()[:16]


def _digest_of_fields(form: Mapping[str, str]) -> str:
    return _digest("\0".join(form.get(name, "").strip() for name in (*FIELDS, "namespace", "command")))


def _namespaces(site: Site, asked: Asked) -> list[str]:
    return [name for name in site.state.namespaces if asked.visible.shows(name)][:1_000]


def _outcome(trial: Trial) -> _Outcome:
    found = trial.forecast
    if found is None:
        return _Outcome(trial)
    delays = [
        _Delay(f"{each.namespace}/{each.name}", _time(each.start), _time(each.later) if each.later else None)
        for each in found.delayed
    ]
    return _Outcome(
        trial,
        _time(found.start) if found.start is not None else None,
        _time(found.misses) if found.misses is not None else None,
        found.start is not None and found.start <= found.now,
        format_nodes(found.nodes),
        delays[:_SHOWN],
        max(len(delays) - _SHOWN, 0),
    )


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
