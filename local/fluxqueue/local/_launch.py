"""Become another program that ends when its parent ends.

``_launch.py SIGNAL PARENT USER PROGRAM [ARGUMENT...]`` gives up root for USER (``-``: stays what it is), asks the kernel for SIGNAL
when its parent dies, and executes PROGRAM in its place. It is a program of its own because the alternative, ``preexec_fn``, is
unsafe in processes with threads (and Python says so with a warning since 3.12). The order matters: changing the user clears the
parent-death signal, and the parent may have died before we asked.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Drop rights, tie our life to the parent's, execute; does not return."""
    death_signal, parent, user, *program = arguments
    if user != "-":
        import pwd

        account = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the program that started this one has ended meanwhile")
    try:
        os.execvp(program[0], program)  # noqa: S606  (this is what the module is for)
    except OSError as error:
        print(f"cannot execute {program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
