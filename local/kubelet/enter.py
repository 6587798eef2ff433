"""Become a container's process: a program that prepares itself and executes the container's command.

``enter.py STATUS ENTRY`` reads what to do from the file descriptor ENTRY (`Entry` of `children`), and writes
to STATUS why that failed; STATUS is closed by the execution itself, so the agent knows the result of the
start. It is a program of its own, started without site- packages, because code between fork and exec is
unsafe in a process with threads.

With namespaces it gets mounts of its own: a temporary root that shows this machine's files, in which the
pod's volumes are where the pod mounts them, and which is gone with the last process in it. No user namespace
is needed as root; others get one in which they keep their own id.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys

_NEWNS, _NEWUTS, _NEWUSER = 0x20000, 0x4000000, 0x10000000
_BIND, _REC, _PRIVATE, _UNBINDABLE = 0x1000, 0x4000, 0x40000, 0x20000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(source: str, target: str, flags: int, kind: str | None = None) -> None:
    encoded = kind.encode() if kind else None
    _check(
        _libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None),
        f"mount of {source} on {target}",
    )


def _unshare() -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = _NEWNS | _NEWUTS | (0 if uid == 0 else _NEWUSER)
    _check(_libc.unshare(flags), "unshare")
    if uid != 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  (pathlib would double the time of the start)
                file.write(text)
    _mount("none", "/", _REC | _PRIVATE)


def _populate(root: str, folder: str, targets: dict[str, str]) -> None:
    """Show the entries of a folder below the root, except those on the way to a target,
    which are folders of the root itself.
    """
    for entry in os.scandir(folder or "/"):
        path = f"{folder}/{entry.name}"
        shown = root + path
        if path in targets:
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(path), shown)  # noqa: PTH115, PTH211
        elif entry.is_dir():
            os.mkdir(shown)  # noqa: PTH102
            if any(target.startswith(f"{path}/") and not os.path.lexists(target) for target in targets):
                _populate(root, path, targets)
            elif not root.startswith(f"{path}/") or path.count("/") == 1:
                _mount(path, shown, _BIND | _REC)
        else:
            os.close(os.open(shown, os.O_CREAT | os.O_WRONLY))
            with contextlib.suppress(OSError):  # a socket or a file that may not be seen
                _mount(path, shown, _BIND)


def _placed(target: str) -> str:
    """Return a mount path without links on its way."""
    return os.path.join(os.path.realpath(os.path.dirname(target)), os.path.basename(target))  # noqa: PTH118, PTH119, PTH120


def _build_root(root: str, mounts: list[list[str]], folder: str) -> None:
    _mount("none", root, 0, "tmpfs")
    _mount("none", root, _UNBINDABLE)
    targets = {_placed(target): source for source, target in mounts}
    _populate(root, "", targets)
    for target, source in sorted(targets.items()):
        shown = root + target
        if os.path.isdir(source):  # noqa: PTH112
            os.makedirs(shown, exist_ok=True)  # noqa: PTH103
        elif not os.path.lexists(shown):
            os.makedirs(os.path.dirname(shown), exist_ok=True)  # noqa: PTH103, PTH120
            os.close(os.open(shown, os.O_CREAT | os.O_WRONLY))
        _mount(source, shown, _BIND | _REC)
    if os.path.isdir(folder) and not os.path.lexists(root + folder):  # a volume is mounted above it  # noqa: PTH112
        os.makedirs(root + folder)  # noqa: PTH103
        _mount(folder, root + folder, _BIND | _REC)
    os.chroot(root)


def _join(pid: int) -> None:
    """Enter the namespaces and the root of another process."""
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    names = ["mnt", "uts"] if os.geteuid() == 0 else ["user", "mnt", "uts"]
    descriptors = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]
    for descriptor in descriptors:
        _check(_libc.setns(descriptor, 0), "setns")
        os.close(descriptor)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)


def _work_in(folder: str) -> None:
    try:
        os.chdir(folder)
    except FileNotFoundError:
        raise OSError(
            f"workingDir {folder} does not exist on this machine: mount a volume there, "
            "or name a folder that exists"
        ) from None
    except OSError as error:
        raise OSError(f"workingDir {folder} cannot be used: {error.strerror}") from None


def _prepare(entry: dict[str, object]) -> list[str]:
    for group in entry["groups"]:  # type: ignore[attr-defined]
        with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123
            file.write("0")
    if entry["join"]:
        _join(int(entry["join"]))  # type: ignore[call-overload]
    elif entry["root"]:
        _unshare()
        name = str(entry["hostname"]).encode()
        _check(_libc.sethostname(name, len(name)), "sethostname")
        _build_root(str(entry["root"]), entry["mounts"], str(entry["folder"]))  # type: ignore[arg-type]
    _work_in(str(entry["folder"]))
    if entry["terminal"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # by this interpreter, or by nohup and a shell's &; what is ignored stays so in the program
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != entry["parent"]:
        raise OSError("the agent has ended meanwhile")
    return [str(word) for word in entry["command"]]  # type: ignore[attr-defined]


def main(arguments: list[str]) -> None:
    """Prepare and execute the command; does not return."""
    status = int(arguments[0])
    os.set_inheritable(status, False)
    try:
        with open(int(arguments[1]), encoding="ascii") as file:  # noqa: PTH123  (it is closed before anything is executed)
            entry = json.load(file)
        command = _prepare(entry)
        try:
            os.execvp(command[0], command)  # noqa: S606  (this is what the program is for)
        except OSError as error:
            found = (
                "executable file not found in $PATH"
                if isinstance(error, FileNotFoundError)
                else str(error.strerror).lower()
            )
            raise OSError(f"exec: {json.dumps(command[0])}: {found}") from None
    except Exception as error:  # whatever it is, the agent has to know
        os.write(status, str(error).encode()[:1024])
        os._exit(128)


if __name__ == "__main__":
    main(sys.argv[1:])
