"""Queues and accounts: what is used of which limit, and what each account is to have."""

from __future__ import annotations

from dataclasses import dataclass

from fluxqueue.api.fluxaccounts import AccountLimits, FluxAccount, FluxAccountStatus
from fluxqueue.api.fluxqueues import FluxQueue, QueueLimits
from fluxqueue.api.formatting import format_limits
from fluxqueue.dashboard.site import Asked, Content, Site, render
from fluxqueue.queue.model.accounts import AccountTree, account_tree

__all__ = ["AccountLine", "QueueLine", "limits_page"]


@dataclass(frozen=True, slots=True)
class Gauge:
    """How much is used of a limit; ``most`` None: there is none."""

    name: str
    used: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue, with its use."""

    queue: FluxQueue
    gauges: tuple[Gauge, ...]
    rules: str


@dataclass(frozen=True, slots=True)
class AccountLine:
    """An account below its parent."""

    account: FluxAccount
    depth: int
    gauges: tuple[Gauge, ...]
    limits: str
    budgets: str
    problems: tuple[str, ...]


async def limits_page(site: Site, asked: Asked) -> Content:
    """Return both tables, each for who may list these objects."""
    visible = asked.visible
    key = ("limits", visible.queues, visible.accounts)
    return site.shared.get(key, site.state.version, lambda: _make(site, asked))


def _make(site: Site, asked: Asked) -> Content:
    visible = asked.visible
    queues = sorted(site.state.queues.list(), key=lambda each: each.metadata.name) if visible.queues else []
    accounts = site.state.accounts.list() if visible.accounts else []
    html = render(
        "limits.html", queues=[_queue(each) for each in queues], accounts=_accounts(accounts), visible=visible
    )
    return Content("Queues and accounts", html)


def _queue(queue: FluxQueue) -> QueueLine:
    spec, status = queue.spec, queue.status
    limits = spec.limits or QueueLimits()
    gauges = (
        Gauge("running", status.running, limits.running),
        Gauge("nodes", status.nodes_in_use, limits.nodes),
    )
    rules = [
        f"policy {spec.policy.value}",
        f"at most {limits.cores} cores" if limits.cores is not None else "",
    ]
    if (each := limits.per_namespace) is not None:
        waiting = f"{each.waiting.words} waiting" if each.waiting is not None and each.waiting.words else ""
        rules.append(f"each namespace at most {', '.join(filter(None, (each.words, waiting)))}")
    for part, of_part in (("user", limits.per_user), ("workload", limits.per_workload)):
        if of_part is not None and of_part.words:
            rules.append(f"each {part} at most {of_part.words}")
    return QueueLine(queue, gauges, "; ".join(rule for rule in rules if rule))


def _accounts(accounts: list[FluxAccount]) -> list[AccountLine]:
    """Return each parent before the accounts below it."""
    tree = account_tree(accounts)
    named = {each.metadata.name: each for each in accounts}
    below: dict[str, list[str]] = {}
    for name, account in tree.accounts.items():
        below.setdefault(account.path[1] if len(account.path) > 1 else "", []).append(name)
    lines: list[AccountLine] = []

    def add(parent: str, depth: int) -> None:
        for name in sorted(below.get(parent, [])):
            lines.append(_account(named[name], depth, tree))
            add(name, depth + 1)

    add("", 0)
    return lines


def _account(account: FluxAccount, depth: int, tree: AccountTree) -> AccountLine:
    limits, status = account.spec.limits or AccountLimits(), account.status
    gauges = (
        Gauge("submitted", status.pending + status.running, limits.submitted),
        Gauge("running", status.running, limits.running),
        Gauge("nodes", status.nodes_in_use, limits.nodes),
    )
    resources = format_limits((), limits.resources)
    parts = (("user", limits.per_user), ("workload", limits.per_workload))
    of_each = [f"each {part} at most {most.words}" for part, most in parts if most is not None and most.words]
    resources = "; ".join(filter(None, (resources, *of_each)))
    problems = tuple(problem.message for problem in tree.problems.get(account.metadata.name, ()))
    return AccountLine(account, min(depth, 4), gauges, resources, _budgets(status), problems)


def _budgets(status: FluxAccountStatus) -> str:
    """Return what is left of a budget in its period."""
    if (budget := status.budget) is None or not budget.amounts:
        return ""
    left = ", ".join(
        f"{each.left:,.10g} of {each.hours:,.10g} hours of {each.name}" for each in budget.amounts
    )
    return f"{left}, until {budget.end[:10]}"
