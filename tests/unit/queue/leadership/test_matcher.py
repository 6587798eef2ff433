"""Which matcher the configuration means."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluxqueue.fluxion.foreign.fluxion import ForeignFluxion
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.queue.admin.server import AdminAddress
from fluxqueue.queue.config import InvalidConfig, QueueConfig, read_config
from fluxqueue.queue.leadership.matcher import connect_matcher
from fluxqueue.queue.settings import ServiceSettings


def settings(config: QueueConfig) -> ServiceSettings:
    return ServiceSettings(
        database_url="postgresql://nowhere",
        fluxion="127.0.0.1:1",
        config=config,
        namespace="n",
        lease="l",
        host="127.0.0.1",
        health_port=1,
        admin=AdminAddress("127.0.0.1", 1, Path()),
    )


def written(folder: Path, text: str) -> QueueConfig:
    path = folder / "queue.yaml"
    path.write_text(text)
    return read_config(path)


async def test_our_own_is_the_default() -> None:
    async with connect_matcher(settings(QueueConfig())) as fluxion:
        assert isinstance(fluxion, AsyncFluxionClient)


async def test_a_foreign_one_gets_its_policy_and_units(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        "policy: first\nmatcher: foreign\nforeign: {cpuVertexMillicores: 500, memoryVertexMiB: 512}\n",
    )
    async with connect_matcher(settings(config)) as fluxion:
        assert isinstance(fluxion, ForeignFluxion)
        assert fluxion._units.offered({"cpu": 1_000, "memory": 1_024}) == {"core": 2, "memory": 2}


@pytest.mark.parametrize(
    "text",
    ["matcher: mine", "matcher: foreign\nforeign: {cpuVertexMillicores: 0}", "foreign: {address: here}"],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig):
        written(tmp_path, text)
