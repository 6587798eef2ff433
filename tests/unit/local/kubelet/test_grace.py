import asyncio

from fluxqueue.local.kubelet.grace import GracePeriod


async def test_a_grace_period_becomes_shorter_but_not_longer() -> None:
    period = GracePeriod()
    period.begin(3600)
    waiting = [asyncio.create_task(period.over()) for _ in range(2)]
    await asyncio.sleep(0)
    period.begin(7200)
    assert 0 < period.left_s <= 3600
    period.begin(0)
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert period.left_s == 0
