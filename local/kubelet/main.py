"""The program of the agent: ``python -m fluxqueue.local.kubelet.main CONFIGURATION``, started by the control
plane.

It ends on SIGTERM, and with it all processes of its pods. What a former agent of the same folder left,
because it was killed, is ended first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from fluxqueue.api.logs import configure_logging
from fluxqueue.kube.transport import Api
from fluxqueue.local.kubelet.addresses import PodAddresses, agent_address, bind_agent
from fluxqueue.local.kubelet.agent import NodeAgent
from fluxqueue.local.kubelet.children import Children, kill_descendants, kill_marked
from fluxqueue.local.kubelet.folders import remove_tree
from fluxqueue.local.kubelet.limits import ControlGroups
from fluxqueue.local.kubelet.machine import (
    ClusterObjects,
    Machine,
    base_variables,
    can_make_namespaces,
    node_info,
)
from fluxqueue.local.kubelet.node_status import NodeStatusWriter
from fluxqueue.local.kubelet.server import make_app

__all__ = ["AgentConfiguration", "main"]

log = structlog.get_logger(__name__)


class AgentConfiguration(msgspec.Struct, frozen=True):
    """What the control plane tells the agent.

    Attributes
    ----------
    kubeconfig
        Its identity.
    api_server_port
        For programs in pods.
    folder
        For the files of pods.
    certificate, key, authority
        Of its server, and of whom it accepts clients.
    client
        The common name of the only client: the API server.
    version
        Of Kubernetes, such as ``v1.36.3``.
    """

    kubeconfig: str
    api_server_port: int
    folder: str
    certificate: str
    key: str
    authority: str
    client: str
    version: str


def main(arguments: list[str]) -> int:
    """Run the agent until it is told to end."""
    configuration = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=AgentConfiguration)
    configure_logging()
    asyncio.run(_run(configuration))
    return 0


async def _run(configuration: AgentConfiguration) -> None:
    folder = Path(configuration.folder)
    kill_marked(str(folder))
    remove_tree(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # noqa: ASYNC240  (before anything runs)
    children = Children()
    children.watch()
    groups = ControlGroups(folder)
    if groups.missing:
        log.warning("limits.not_enforced", reason=groups.missing)
    if not (namespaces := await can_make_namespaces(children)):
        log.warning(
            "namespaces.not_available",
            remedy="root with CAP_SYS_ADMIN, or kernel.apparmor_restrict_unprivileged_userns=0",
        )
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    network, listener = bind_agent()
    host = agent_address(network)
    try:
        async with Api.connect(configuration.kubeconfig, user_agent="fluxqueue/local-kubelet") as api:
            machine = Machine(
                api,
                ClusterObjects(api),
                children,
                PodAddresses(network),
                folder,
                host,
                namespaces,
                base_variables(configuration.api_server_port),
                groups,
            )
            agent = NodeAgent(machine)
            server = web.AppRunner(make_app(agent, configuration.client), access_log=None, shutdown_timeout=1)
            await server.setup()
            await web.SockSite(server, listener, ssl_context=_tls(configuration)).start()
            nodes = NodeStatusWriter(
                api, agent.nodes, host, listener.getsockname()[1], node_info(configuration.version)
            )
            await _until(ended, agent, nodes)
            await server.cleanup()
    finally:
        kill_descendants()
        groups.remove()


async def _until(ended: asyncio.Event, agent: NodeAgent, nodes: NodeStatusWriter) -> None:
    work = [asyncio.create_task(agent.run()), asyncio.create_task(nodes.run())]
    stop = asyncio.create_task(ended.wait())
    done, _ = await asyncio.wait([*work, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in (*work, stop):
        task.cancel()
    for task in work:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()


def _tls(configuration: AgentConfiguration) -> ssl.SSLContext:
    """Return the server's TLS context: only clients with a certificate of the cluster's authority are
    accepted at all.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(configuration.certificate, configuration.key)
    context.load_verify_locations(configuration.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
