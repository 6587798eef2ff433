"""What is asked of Prometheus, and which answers count."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.prometheus_standin import PrometheusStandin, answer, prometheus_standin
from support.work_counts import assert_linear

from fluxqueue.queue.model.idleness import IdleRules, PodName, PrometheusRules
from fluxqueue.queue.requeue import prometheus
from fluxqueue.queue.requeue.prometheus import NoAnswer, ask_use, use_in

POD = ("physics", "mpi-0")


def known(_pod: PodName) -> bool:
    return True


@pytest.fixture
def standin() -> Iterator[PrometheusStandin]:
    with prometheus_standin() as made:
        yield made


def rules(standin: PrometheusStandin, token_file: str = "") -> IdleRules:
    return IdleRules(
        prometheus=PrometheusRules(url=f"{standin.url}/", token_file=token_file), query="gpu_use # percent"
    )


async def test_one_series_for_each_pod_is_asked_for_with_the_token(
    standin: PrometheusStandin, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret\n")
    standin.use[POD] = 2.5
    assert await ask_use(rules(standin, str(tmp_path / "token")), known) == {POD: 2.5}
    assert standin.queries == ["max by (namespace, pod) (gpu_use # percent\n)"]
    assert standin.tokens == ["Bearer secret"]


async def test_an_error_is_told_in_its_first_words(standin: PrometheusStandin) -> None:
    standin.status, standin.body = 400, b'{"status":"error","error":"parse error: %s"}' % (b"x" * 9000)
    with pytest.raises(NoAnswer, match="parse error") as error:
        await ask_use(rules(standin), known)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("body", [b"<html>", answer({POD: 0})])
@pytest.mark.parametrize("status", [302, 401, 500])
async def test_what_is_no_answer_is_none(standin: PrometheusStandin, status: int, body: bytes) -> None:
    standin.status, standin.body = status, body
    with pytest.raises(NoAnswer, match=str(status)):
        await ask_use(rules(standin), known)
    assert len(standin.tokens) == 1


async def test_an_answer_is_read_up_to_its_bound(
    standin: PrometheusStandin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 100)
    standin.body = b" " * 101
    with pytest.raises(NoAnswer, match="more than 100 bytes"):
        await ask_use(rules(standin), known)


async def test_one_who_does_not_listen_or_answer_is_no_answer(
    standin: PrometheusStandin, tmp_path: Path
) -> None:
    silent = IdleRules(prometheus=PrometheusRules(url="http://127.0.0.1:1"), query="x")
    with pytest.raises(NoAnswer, match="Connect"):
        await ask_use(silent, known)
    with pytest.raises(NoAnswer, match="FileNotFoundError"):
        await ask_use(rules(standin, str(tmp_path / "none")), known)


async def test_only_known_pods_count_and_the_largest_value_of_each() -> None:
    body = answer({POD: 3, ("physics", "; DROP"): 1})
    twice = body.replace(b"[{", b'[{"metric":{"namespace":"physics","pod":"mpi-0"},"value":[1,"90"]}, {', 1)
    assert await use_in(twice, lambda pod: pod == POD) == {POD: 90}


@pytest.mark.parametrize("text", ["NaN", "many", ""])
async def test_what_is_no_number_is_use(text: str) -> None:
    assert await use_in(answer({POD: text}), known) == {POD: math.inf}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\x1f\x8b",
        b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":1},"value":[1,"2"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[%s]}}' % b",".join([b"0"] * 100_001),
        b'{"status":"error","error":"\xff"}',
        b'{"status":"success","data":{"resultType":"vector","result":[%s]}}' % (b"[" * 9999 + b"]" * 9999),
    ],
    ids=[
        "empty",
        "a list",
        "compressed",
        "a scalar",
        "a number as name",
        "no value",
        "too many series",
        "no UTF-8",
        "too deep",
    ],
)
async def test_what_cannot_be_read_is_no_answer(body: bytes) -> None:
    with pytest.raises(NoAnswer):
        await use_in(body, known)


async def test_what_has_more_parts_than_so_many_series_is_not_read() -> None:
    parts = b",".join([b"0"] * 500_000)
    with pytest.raises(NoAnswer, match="more than 100000 series"):
        await use_in(b'{"status":"success","data":{"resultType":"vector","result":[%s]}}' % parts, known)


@pytest.mark.parametrize(
    ("warning", "counts"),
    [("receive series from store-2: unavailable", False), ("PromQL warning: no counter", True)],
)
async def test_an_answer_that_lacks_a_part_is_none(warning: str, counts: bool) -> None:
    body = answer({POD: 3}).replace(b'"status"', b'"warnings": ["%s"], "status"' % warning.encode(), 1)
    if counts:
        assert await use_in(body, known) == {POD: 3}
    else:
        with pytest.raises(NoAnswer, match="a part may be missing: receive series from store-2"):
            await use_in(body, known)


async def test_an_answer_that_is_partial_is_none() -> None:
    with pytest.raises(NoAnswer, match="a part may be missing: it is partial"):
        await use_in(answer({POD: 3}).replace(b'"status"', b'"isPartial": true, "status"', 1), known)


def test_a_long_answer_costs_in_proportion_to_its_length() -> None:
    def prepare(size: int) -> Callable[[], object]:
        body = answer({("n", f"p-{number}"): 1 for number in range(size)})
        return lambda: asyncio.run(use_in(body, known))

    assert_linear(prepare, 300)
