"""What pods get of ConfigMaps and Secrets."""

from typing import Any, cast

from fluxqueue.kube.transport import Api
from fluxqueue.local.kubelet.machine import ClusterObjects

_CONFIG_MAP = ("configmaps", "cm")
_SECRET = ("secrets", "s")


class Server:
    """An API server with one ConfigMap and one Secret."""

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        assert method == "GET"
        if path.endswith("/secrets/s"):
            return b'{"data":{"word":"bm93"}}'
        return b'{"data":{"text":"1"},"binaryData":{"binary":"AAE="}}'


async def test_files_have_binary_data_and_variables_have_none() -> None:
    objects = ClusterObjects(cast(Api, Server()))
    assert await objects.read("ns", [_CONFIG_MAP]) == {_CONFIG_MAP: {"text": b"1", "binary": b"\0\1"}}
    found = await objects.read("ns", [_CONFIG_MAP, _SECRET], binary=False)
    assert found == {_CONFIG_MAP: {"text": b"1"}, _SECRET: {"word": b"now"}}
