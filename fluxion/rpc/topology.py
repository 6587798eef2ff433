"""AddNodes, RemoveNodes, SetStatus and SetProperties: the RPCs that change the nodes of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fluxqueue.fluxion.changes import AddNodes, RemoveNodes, SetNodeStatus, SetProperties
from fluxqueue.fluxion.messages import AppliedChanges
from fluxqueue.fluxion.rpc.change_requests import ChangeRpc, StepRpc
from fluxqueue.fluxion.rpc.values import read_node, write_node
from fluxqueue.proto.v1 import fluxion_pb2 as pb

if TYPE_CHECKING:
    from fluxqueue.fluxion.engine.engine import Engine

__all__ = ["RPCS", "AddNodesRpc", "RemoveNodesRpc", "SetPropertiesRpc", "SetStatusRpc"]


class AddNodesRpc(ChangeRpc):
    """Add nodes, or give known ones another shape."""

    __slots__ = ()

    method = "AddNodes"
    request_type = pb.AddNodesRequest
    change_type = AddNodes
    step = "add_nodes"

    @staticmethod
    def write_change(change: AddNodes, call: pb.Call | None = None) -> pb.AddNodesRequest:
        """Write the nodes."""
        return pb.AddNodesRequest(call=call, nodes=[write_node(node) for node in change.nodes])

    @staticmethod
    def read_change(message: pb.AddNodesRequest) -> AddNodes:
        """Read the nodes."""
        return AddNodes(tuple(read_node(node) for node in message.nodes))

    def run(self, engine: Engine) -> AppliedChanges:
        """Add them."""
        return engine.add_nodes(self.change.nodes, self.call)


class RemoveNodesRpc(ChangeRpc):
    """Remove nodes. Sent once: a second attempt could report that the nodes are missing."""

    __slots__ = ()

    method = "RemoveNodes"
    request_type = pb.RemoveNodesRequest
    change_type = RemoveNodes
    step = "remove_nodes"
    repeatable = False

    @staticmethod
    def write_change(change: RemoveNodes, call: pb.Call | None = None) -> pb.RemoveNodesRequest:
        """Write the names."""
        return pb.RemoveNodesRequest(call=call, nodes=change.nodes)

    @staticmethod
    def read_change(message: pb.RemoveNodesRequest) -> RemoveNodes:
        """Read the names."""
        return RemoveNodes(tuple(message.nodes))

    def run(self, engine: Engine) -> AppliedChanges:
        """Remove them."""
        return engine.remove_nodes(self.change.nodes, self.call)


class SetStatusRpc(ChangeRpc):
    """Mark nodes or vertices up or down."""

    __slots__ = ()

    method = "SetStatus"
    request_type = pb.SetStatusRequest
    change_type = SetNodeStatus
    step = "set_status"

    @staticmethod
    def write_change(change: SetNodeStatus, call: pb.Call | None = None) -> pb.SetStatusRequest:
        """Write what is up."""
        return pb.SetStatusRequest(call=call, up=change.up)

    @staticmethod
    def read_change(message: pb.SetStatusRequest) -> SetNodeStatus:
        """Read what is up."""
        return SetNodeStatus(dict(message.up))

    def run(self, engine: Engine) -> AppliedChanges:
        """Mark them."""
        return engine.set_node_status(self.change.up, self.call)


class SetPropertiesRpc(ChangeRpc):
    """Replace the properties of nodes."""

    __slots__ = ()

    method = "SetProperties"
    request_type = pb.SetPropertiesRequest
    change_type = SetProperties
    step = "set_properties"

    @staticmethod
    def write_change(change: SetProperties, call: pb.Call | None = None) -> pb.SetPropertiesRequest:
        """Write the properties by node."""
        nodes = {name: pb.Properties(properties=properties) for name, properties in change.nodes.items()}
        return pb.SetPropertiesRequest(call=call, nodes=nodes)

    @staticmethod
    def read_change(message: pb.SetPropertiesRequest) -> SetProperties:
        """Read the properties by node."""
        return SetProperties(
            {name: dict(properties.properties) for name, properties in message.nodes.items()}
        )

    def run(self, engine: Engine) -> AppliedChanges:
        """Replace them."""
        return engine.set_properties(self.change.nodes, self.call)


RPCS: Final[tuple[type[StepRpc[Any]], ...]] = (AddNodesRpc, RemoveNodesRpc, SetStatusRpc, SetPropertiesRpc)
