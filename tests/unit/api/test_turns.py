import asyncio

from fluxqueue.api.turns import CallerTurns, party_of


async def test_one_caller_has_no_more_than_his_own_turns_and_all_have_the_common_ones() -> None:
    turns = CallerTurns(at_once=3, of_one=1)
    running: list[str] = []
    seen: list[list[str]] = []

    async def work(caller: str) -> None:
        async with turns.turn(caller):
            running.append(caller)
            seen.append(sorted(running))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.remove(caller)

    await asyncio.gather(*(work(caller) for caller in ["mallory"] * 20 + ["alice", "bob", "carol"]))
    assert seen[2] == ["alice", "bob", "mallory"], "nobody waits behind the twenty of another"
    assert max(len(each) for each in seen) == 3
    assert all(each.count("mallory") <= 1 for each in seen)
    assert not turns._own


async def test_who_gives_up_leaves_his_place() -> None:
    turns = CallerTurns(at_once=1, of_one=1)
    async with turns.turn("alice"):
        waiting = asyncio.create_task(_enter(turns, "alice"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(60), turns.turn("alice"):
        pass
    assert not turns._own


async def _enter(turns: CallerTurns, caller: str) -> None:
    async with turns.turn(caller):
        pass


def test_accounts_of_one_namespace_are_one_caller() -> None:
    assert party_of("system:serviceaccount:blue:a") == party_of("system:serviceaccount:blue:b")
    assert party_of("system:serviceaccount:blue:a") != party_of("system:serviceaccount:green:a")
    assert party_of("alice:b") == "alice:b"
