"""Values that several RPCs carry, as messages of the proto file and back, one for one.

`write_*` turns a value into a message, `read_*` turns a message into a value. The only decision made here is
what the proto file leaves open: a vertex size of 0 means 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, Level, NodeShare, Pool
from fluxqueue.fluxion.rpc.failures import InvalidCall
from fluxqueue.proto.v1 import fluxion_pb2 as pb

__all__ = [
    "read_call",
    "read_counts",
    "read_node",
    "read_share",
    "read_shares",
    "read_system_share",
    "read_system_shares",
    "write_call",
    "write_node",
    "write_share",
    "write_system_share",
]


def write_call(call: CallContext) -> pb.Call:
    """Write time, epoch and instance; a ``now`` of None stays absent, which is not the same as 0."""
    return pb.Call(now=call.now, epoch=call.epoch, instance=call.instance)


def read_call(message: pb.Call) -> CallContext:
    """Read time, epoch and instance; an empty message claims none of them.

    Raises
    ------
    InvalidCall
        Time or epoch is negative.
    """
    now = message.now if message.HasField("now") else None
    if now is not None and now < 0:
        raise InvalidCall(f"call.now is {now}: Unix seconds are 0 or more; leave it out for the frozen clock")
    if message.epoch < 0:
        raise InvalidCall(f"call.epoch is {message.epoch}: epochs are counted from 1, and 0 claims none")
    return CallContext(now, message.epoch, message.instance)


def write_node(node: GraphNodeSpec) -> pb.NodeSpec:
    """Write a node of the graph."""
    return pb.NodeSpec(
        name=node.name,
        levels=[pb.Level(type=level.type, name=level.name) for level in node.levels],
        pools=[
            pb.Pool(type=pool.type, total=pool.total, vertex_size=pool.vertex_size) for pool in node.pools
        ],
        properties=node.properties,
        down=node.down,
    )


def read_node(message: pb.NodeSpec) -> GraphNodeSpec:
    """Read a node of the graph; a vertex size of 0 means 1."""
    return GraphNodeSpec(
        name=message.name,
        pools=tuple(Pool(pool.type, pool.total, pool.vertex_size or 1) for pool in message.pools),
        levels=tuple(Level(level.type, level.name) for level in message.levels),
        properties=dict(message.properties),
        down=message.down,
    )


def write_share(share: NodeShare) -> pb.NodeShare:
    """Write what a job has on one node; item by item, since the constructor takes twice as long and a batch
    has hundreds.
    """
    message = pb.NodeShare(node=share.node)
    slots, amounts = message.slots, message.amounts
    for label, number in share.slots.items():
        slots[label] = number
    for kind, amount in share.amounts.items():
        amounts[kind] = amount
    if share.exclusive:
        message.exclusive = True
    return message


def read_share(message: pb.NodeShare) -> NodeShare:
    """Read what a job has on one node."""
    return NodeShare(
        message.node, read_counts(message.slots), read_counts(message.amounts), message.exclusive
    )


def read_shares(messages: Iterable[pb.NodeShare]) -> tuple[NodeShare, ...]:
    """Read what a job has on each of its nodes."""
    return tuple(read_share(message) for message in messages)


def write_system_share(share: NodeShare) -> pb.SystemShare:
    """Write what runs on one node outside of Fluxion: amounts only."""
    return pb.SystemShare(node=share.node, amounts=share.amounts)


def read_system_share(message: pb.SystemShare) -> NodeShare:
    """Read what runs on one node outside of Fluxion."""
    return NodeShare(message.node, amounts=read_counts(message.amounts))


def read_system_shares(messages: Iterable[pb.SystemShare]) -> tuple[NodeShare, ...]:
    """Read what runs on several nodes outside of Fluxion."""
    return tuple(read_system_share(message) for message in messages)


def read_counts(message: Mapping[str, int]) -> dict[str, int]:
    """Read a map field, in half the time that ``dict()`` takes."""
    return {key: message[key] for key in message}
