from __future__ import annotations

import inspect

from google.protobuf.message import Message

from fluxqueue.fluxion.rpc.blocking import BlockingFluxion
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.fluxion.rpc.methods import METHODS
from fluxqueue.proto.v1 import fluxion_pb2 as pb


def test_every_rpc_of_the_proto_has_its_request_and_response() -> None:
    methods = pb.DESCRIPTOR.services_by_name["FluxionService"].methods_by_name
    described = {
        name: (method.input_type.full_name, method.output_type.full_name) for name, method in methods.items()
    }
    assert {
        name: (_name(rpc.request_type), _name(rpc.response_type)) for name, rpc in METHODS.items()
    } == described


def test_the_blocking_interface_has_the_methods_and_arguments_of_the_other() -> None:
    asynchronous = _signatures(Fluxion)
    assert asynchronous.pop("wait_for_loss")
    assert _signatures(BlockingFluxion) == asynchronous


def _name(message: type[Message]) -> str:
    return str(message.DESCRIPTOR.full_name)


def _signatures(interface: type) -> dict[str, inspect.Signature]:
    methods = inspect.getmembers(interface, inspect.isfunction)
    return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}
