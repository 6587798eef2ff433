"""Calls packed for pods: a Secret with the program, the pickled function, the arguments of each task, and the
key for the results.

A Secret holds at most 1 MiB. It is not a place for data: a call that needs much reads it from a volume or an
object store.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import secrets
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from fluxqueue.client import frames, worker
from fluxqueue.client.errors import CallTooLarge, FluxQueueError, InvalidWork

__all__ = ["MAX_TASKS_BYTES", "Call", "Chunk", "PackedCalls", "packed"]

_SECRET = 1 << 20
_ALWAYS = (1 << 16) + 4_096
"""For the program, the key and the settings."""
MAX_TASKS_BYTES = _SECRET - _ALWAYS
"""Bytes of the pickled tasks of one Job."""

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments."""
Chunk = Sequence[Call]


@dataclass(frozen=True)
class PackedCalls:
    """The tasks of one Job.

    Attributes
    ----------
    task
        The random name of these tasks.
    key
        The key for their results.
    data
        The content of the Secret.
    """

    task: str
    key: bytes = field(repr=False)
    data: Mapping[str, bytes] = field(repr=False)

    def encoded(self) -> dict[str, str]:
        """Return the content in the form of a Secret."""
        return {name: base64.b64encode(content).decode() for name, content in self.data.items()}


def packed(function: Callable[..., Any], chunks: Sequence[Chunk], max_result_bytes: int) -> PackedCalls:
    """Pack the calls of a function; each chunk is the work of one pod.

    Parameters
    ----------
    function
        Anything that cloudpickle can pickle: also a lambda, or a function of ``__main__``.
    chunks
        The arguments of the calls.
    max_result_bytes
        The largest pickled result of one pod.

    Raises
    ------
    CallTooLarge
        They do not fit into one Secret.
    InvalidWork
        They cannot be pickled.
    """
    pickler = _cloudpickle()
    name = getattr(function, "__qualname__", type(function).__name__)
    tasks: dict[str, bytes] = {}
    for index, chunk in enumerate(chunks):
        try:
            tasks[f"task-{index}"] = pickler.dumps(
                (function, [(tuple(args), dict(kwargs)) for args, kwargs in chunk])
            )
        except Exception as error:  # whatever the objects raise when they are pickled
            raise InvalidWork(
                f"{name} cannot be shipped with its arguments: {type(error).__name__}: {error}: "
                "pass plain data"
            ) from None
    size = sum(map(len, tasks.values()))
    if size > MAX_TASKS_BYTES:
        raise CallTooLarge(
            f"{name} has {size} bytes with its arguments, and at most {MAX_TASKS_BYTES} are shipped in one "
            "Job: pass the place of the data (a volume, an object store) instead of the data, "
            "or use smaller chunks"
        )
    task = secrets.token_hex(8)
    settings = {
        "task": task,
        "python": ".".join(map(str, sys.version_info[:2])),
        "max_bytes": max_result_bytes,
    }
    key = secrets.token_bytes(32)
    return PackedCalls(
        task,
        key,
        {"worker.pyz": program(), "key": key, "settings.json": json.dumps(settings).encode(), **tasks},
    )


@functools.cache
def program() -> bytes:
    """Return the program of the pods: the worker, the frames and cloudpickle,
    as one file that Python runs.
    """
    packing = io.BytesIO()
    with zipfile.ZipFile(packing, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, module in (("__main__.py", worker), ("frames.py", frames)):
            archive.writestr(name, Path(str(module.__file__)).read_bytes())
        folder = Path(str(_cloudpickle().__file__)).parent
        for path in sorted(folder.glob("*.py")):
            archive.writestr(f"cloudpickle/{path.name}", path.read_bytes())
    return packing.getvalue()


def _cloudpickle() -> ModuleType:
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise FluxQueueError(
            "the executor needs cloudpickle: pip install 'fluxqueue-hpc[executor]'"
        ) from None
    return cloudpickle  # type: ignore[no-any-return]
