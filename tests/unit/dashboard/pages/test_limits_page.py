import msgspec
from support.dashboard_site import Stage

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxqueues import FluxQueue
from fluxqueue.dashboard.pages.limits_page import limits_page
from fluxqueue.dashboard.site import Asked

BOTH = (("list", "fluxqueues", ""), ("list", "fluxaccounts", ""))


def account(name: str, parent: str = "", **parts: object) -> FluxAccount:
    spec = {**({"parent": parent} if parent else {}), **parts.pop("spec", {})}  # type: ignore[dict-item]
    return msgspec.convert(
        {"metadata": {"name": name, "uid": name}, "spec": spec, "status": parts}, FluxAccount
    )


async def html(stage: Stage, *rights: tuple[str, str, str]) -> str:
    viewer = await stage.viewer("alice", *rights)
    return str((await limits_page(stage.site, Asked(viewer, await stage.site.visible(viewer)))).html)


def stage() -> Stage:
    made = Stage()
    queue = {
        "limits": {
            "running": 6,
            "cores": 64,
            "perNamespace": {"nodes": 2, "waiting": {"workloads": 9, "requestsMiB": 5}},
            "perWorkload": {"cores": 8},
        },
        "policy": "easy",
    }
    status = {"pending": 3, "running": 5, "nodesInUse": 4}
    made.state.queues.apply(
        msgspec.convert({"metadata": {"name": "gpu", "uid": "q"}, "spec": queue, "status": status}, FluxQueue)
    )
    made.state.accounts.apply(account("science", running=2, nodesInUse=3))
    made.state.accounts.apply(
        account(
            "physics",
            "science",
            running=2,
            spec={
                "limits": {
                    "running": 4,
                    "resources": {"cpu": "64"},
                    "perWorkload": {"resources": {"memory": "1Ti"}},
                },
                "shares": 3,
            },
            fairShare={"share": 0.75, "use": 52_000, "factor": 0.5},
            budget={
                "end": "2026-12-01T00:00:00Z",
                "amounts": [{"name": "nodes", "hours": 2000, "used": 700, "promised": 50, "left": 1250}],
            },
        )
    )
    made.state.accounts.apply(account("lost", "nowhere"))
    return made


async def test_use_is_shown_against_limits_and_shares() -> None:
    text = await html(stage(), *BOTH)
    assert 'aria-label="5 of 6 running"' in text
    assert (
        "at most 64 cores; each namespace at most 2 nodes, "
        "9 workloads and 5 MiB of requests waiting; each workload at most 8 cores"
    ) in text
    assert 'class="depth-1"><a href="/queue?account=physics">physics</a>' in text
    assert "14.44 core-hours" in text
    assert "64 cpu; each workload at most 1Ti memory" in text
    assert "75.0 %" in text
    assert "1,250 of 2,000 hours of nodes, until 2026-12-01" in text


async def test_a_problem_of_an_account_is_named() -> None:
    assert "nowhere" in await html(stage(), *BOTH)


async def test_each_table_is_for_who_may_list_its_objects() -> None:
    text = await html(stage(), BOTH[0])
    assert "gpu" in text
    assert "You may not list FluxAccounts" in text
    assert "physics" not in text
    text = await html(stage())
    assert "You may not list FluxQueues" in text
    assert "gpu" not in text


async def test_nothing_is_said_to_be_nothing() -> None:
    text = await html(Stage(), *BOTH)
    assert "There is no FluxQueue" in text
    assert "There are no FluxAccounts" in text


async def test_columns_of_accounts_with_nothing_in_them_are_left_out() -> None:
    made = stage()
    text = await html(made, *BOTH)
    assert "Left of budgets" in text
    assert "Guaranteed" not in text
    made.state.accounts.remove(made.state.accounts.get("", "physics"))  # type: ignore[arg-type]
    text = await html(made, *BOTH)
    assert "Left of budgets" not in text
    assert "Limits of resources" not in text
