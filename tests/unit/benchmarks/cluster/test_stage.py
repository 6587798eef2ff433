from __future__ import annotations

import asyncio

import msgspec
from cluster.stage import PodTimes
from support.builders import PodBuilder, make_pod

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache


def of_job(job: str, name: str) -> PodBuilder:
    return make_pod(name).uid(f"uid-{name}").owned_by("Job", job)


def put(cache: ObjectCache[Pod], built: PodBuilder, version: int) -> None:
    cache.apply(msgspec.convert(built.with_("metadata.resourceVersion", str(version)).build(), Pod))


def test_a_pod_is_bound_once_when_it_is_first_seen_on_a_node() -> None:
    cache: ObjectCache[Pod] = ObjectCache()
    times = PodTimes(cache)
    put(cache, of_job("one", "one-a"), 1)
    assert times.bound == {}
    put(cache, of_job("one", "one-a").on_node("n"), 2)
    put(cache, of_job("one", "one-a").on_node("n").phase("Running"), 3)
    put(cache, of_job("one", "one-b").on_node("n"), 4)
    assert (len(times.bound["one"]), len(times.all_bound)) == (2, 2)


def test_a_pod_that_succeeds_ends_and_frees_its_node_once() -> None:
    cache: ObjectCache[Pod] = ObjectCache()
    times = PodTimes(cache)
    put(cache, of_job("one", "one-a").on_node("n"), 1)
    put(cache, of_job("one", "one-a").on_node("n").phase("Succeeded"), 2)
    cache.remove(cache.list()[0])
    assert (len(times.ended["one"]), len(times.freed)) == (1, 1)


def test_a_pod_that_is_deleted_frees_its_node_without_an_end_of_its_job() -> None:
    cache: ObjectCache[Pod] = ObjectCache()
    times = PodTimes(cache)
    put(cache, of_job("one", "one-a").on_node("n"), 1)
    put(cache, of_job("two", "two-a"), 2)
    for each in cache.list():
        cache.remove(each)
    assert (times.ended, len(times.freed)) == ({}, 1)


async def test_a_gang_is_bound_when_all_of_its_pods_are() -> None:
    cache: ObjectCache[Pod] = ObjectCache()
    times = PodTimes(cache)
    put(cache, of_job("one", "one-a").on_node("n"), 1)
    waiting = asyncio.create_task(times.until_bound(["one"], 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    put(cache, of_job("one", "one-b").on_node("n"), 2)
    await asyncio.wait_for(waiting, 60)
    assert await times.until_number(2) == times.all_bound[1]
