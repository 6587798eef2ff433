"""Substitute folders, for folders that a server's account cannot access, and their removal.

If root starts Postgres, it runs as another account, and its data is below /var/lib/fluxqueue instead of in
the requested folder (`postgres`). If the owner is killed, or deletes only the requested folder, the
substitute remains. So each substitute contains a note: the requested folder, the last process that claimed
it, and whether its data must outlive that process. A substitute is abandoned if that process has ended, no
server runs in it, and it is not needed: it need not be kept, or the requested folder was deleted. A pid is
not enough to identify a process, because pids are reused; the pid together with the start time is unique.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from fluxqueue.local.binaries import locked
from fluxqueue.local.processes import stat_fields

__all__ = ["claim", "prune"]

_NOTE = "owner.json"
_LOCK_TIMEOUT_S = 30


class _Note(msgspec.Struct, frozen=True):
    stands_for: str
    kept: bool
    pid: int
    started: int


def claim(folder: Path, stands_for: Path, *, kept: bool) -> None:
    """Create a substitute folder, or claim an existing one, for this process.

    Parameters
    ----------
    folder
        The substitute; its parent exists.
    stands_for
        The requested folder.
    kept
        True if the content must outlive this process.
    """
    pid = os.getpid()
    note = _Note(str(stands_for), kept, pid, _started(pid) or 0)
    with locked(folder.parent / "lock", _LOCK_TIMEOUT_S):
        folder.mkdir(exist_ok=True, mode=0o700)
        unfinished = folder / f".{_NOTE}.{pid}"
        unfinished.write_bytes(msgspec.json.encode(note))
        unfinished.rename(folder / _NOTE)


def prune(root: Path) -> list[Path]:
    """Remove abandoned substitutes.

    Parameters
    ----------
    root
        Their parent folder; folders without a note are kept.
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
    """Return the start time of a process in clock ticks since boot (field 22 of stat in proc(5));
    None if it does not exist.
    """
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def _serves(folder: Path) -> bool:
    """True if a Postgres server runs in the folder:
    it writes its pid, and its working directory is its data folder.
    """
    data = folder / "data"
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except (OSError, ValueError, IndexError):
        return False
