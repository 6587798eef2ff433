"""Folders that stand for others, because a server's account cannot reach those, and what became of them.

As root, Postgres runs as another account and its data lies below /var/lib/fluxqueue instead of in the folder that was asked for
(`postgres`). Whoever is killed, or removes the folder he knows of, leaves that one behind. So each holds a note: whom it stands for,
which process took it up last, and whether its data is to outlive that process. A folder is abandoned when that process has ended, no
server runs in it, and nobody can want it: it was not to be kept, or what it stands for is gone. A pid alone proves nothing, because
pids come again; with the moment of its start it is one process for ever.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from fluxqueue.local.binaries import locked

__all__ = ["claim", "prune"]

_NOTE = "owner.json"
_LOCK_TIMEOUT_S = 30


class _Note(msgspec.Struct, frozen=True):
    stands_for: str
    kept: bool
    pid: int
    started: int


def claim(folder: Path, stands_for: Path, *, kept: bool) -> None:
    """Make a stand-in, or take one up again, for this process.

    Parameters
    ----------
    folder
        The stand-in; its parent exists.
    stands_for
        The folder that was asked for.
    kept
        Whether the content is to outlive this process.
    """
    pid = os.getpid()
    note = _Note(str(stands_for), kept, pid, _started(pid) or 0)
    with locked(folder.parent / "lock", _LOCK_TIMEOUT_S):
        folder.mkdir(exist_ok=True, mode=0o700)
        unfinished = folder / f".{_NOTE}.{pid}"
        unfinished.write_bytes(msgspec.json.encode(note))
        unfinished.rename(folder / _NOTE)


def prune(root: Path) -> list[Path]:
    """Remove abandoned stand-ins.

    Parameters
    ----------
    root
        Where they are; folders in it without a note are left alone.

    Returns
    -------
    list of Path
        What was removed.
    """
    if not root.is_dir():
        return []
    with locked(root / "lock", _LOCK_TIMEOUT_S):
        abandoned = [note.parent for note in root.glob(f"*/{_NOTE}") if _abandoned(note)]
        removed = [folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}")) for folder in abandoned]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return abandoned


def _abandoned(path: Path) -> bool:
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
    except (OSError, msgspec.MsgspecError):
        return False
    if _started(note.pid) == note.started or _serves(path.parent):
        return False
    return not note.kept or not Path(note.stands_for).parent.exists()


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of proc(5)'s stat); None if there is none of this pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])


def _serves(folder: Path) -> bool:
    """Whether a Postgres server works in the folder: it notes its pid, and its working directory is its data."""
    data = folder / "data"
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except (OSError, ValueError, IndexError):
        return False
