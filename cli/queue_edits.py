"""`kubectl fluxqueue queue`: creates FluxQueues, and opens, holds and drains them.

A state is one merge patch, as ``kubectl patch`` would send it. The queue ``default`` exists without a
FluxQueue, so its FluxQueue is created where there is none. The webhook checks what is created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import FluxQueue, QueueState
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError, NoSuchResource, ObjectNotFound
from fluxqueue.cli.listing import NOT_INSTALLED, collection
from fluxqueue.cli.remedies import described

__all__ = ["STATES", "create_queue", "queue_manifest", "set_state"]

STATES: Mapping[str, QueueState] = {
    "hold": QueueState.HELD,
    "resume": QueueState.OPEN,
    "drain": QueueState.DRAINED,
}
_SAID = {
    QueueState.HELD: "held: it accepts work and starts none",
    QueueState.OPEN: "open",
    QueueState.DRAINED: "drained: it accepts no new work, and starts and finishes what it has",
}
_FORBIDDEN = 403
_RIGHT = (
    "an administrator gives you the right by: kubectl create clusterrolebinding NAME "
    "--clusterrole=fluxqueue-operator --user=YOU"
)


def queue_manifest(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a FluxQueue."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "FluxQueue",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def create_queue(
    client: ApiClient, manifest: Mapping[str, Any], out: TextIO, *, dry_run: bool = False
) -> int:
    """Create a FluxQueue.

    Raises
    ------
    ClusterError
        It exists already, the webhook refuses it, or the person may not create it.
    """
    params = {"fieldManager": "kubectl-fluxqueue", **({"dryRun": "All"} if dry_run else {})}
    _allowed(lambda: client.post(collection(names.FLUXQUEUES), manifest, params=params))
    out.write(f"fluxqueue/{manifest['metadata']['name']} created{' (server dry run)' if dry_run else ''}\n")
    return 0


def set_state(client: ApiClient, wanted: Sequence[str], state: QueueState, out: TextIO) -> int:
    """Open, hold or drain queues, and print a line for each.

    Raises
    ------
    ClusterError
        After all changes, with a line for each queue that does not exist or that the person may not change.
    """
    errors: list[str] = []
    for name in wanted:
        try:
            changed = _set(client, name, state)
            out.write(f"queue {name} is {_SAID[state]}{'' if changed else ' (no change)'}\n")
        except ApiRefused as error:
            errors.append(described(error))
        except ClusterError as error:
            if len(wanted) == 1:
                raise
            errors.append(str(error))
    if errors:
        raise ClusterError("\n".join(errors))
    return 0


def _set(client: ApiClient, name: str, state: QueueState) -> bool:
    path = f"{collection(names.FLUXQUEUES)}/{name}"
    try:
        present = msgspec.json.decode(_allowed(lambda: client.get(path)), type=FluxQueue)
    except ObjectNotFound:
        if name != names.DEFAULT_QUEUE:
            raise
        if state is QueueState.OPEN:
            return False
        _allowed(
            lambda: client.post(collection(names.FLUXQUEUES), queue_manifest(name, {"state": str(state)}))
        )
        return True
    if present.spec.state == state:
        return False
    _allowed(lambda: client.patch(path, {"spec": {"state": str(state)}}))
    return True


def _allowed(call: Callable[[], bytes]) -> bytes:
    try:
        return call()
    except NoSuchResource:
        raise ClusterError(NOT_INSTALLED.format(names.FLUXQUEUES)) from None
    except ApiRefused as error:
        if error.status == _FORBIDDEN and error.reason == "Forbidden" and "cannot" in str(error):
            raise ClusterError(f"error: you may not change queues; {_RIGHT} ({error})") from None
        raise
