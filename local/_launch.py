"""Execute another program that ends when its parent ends.

``_launch.py SIGNAL PARENT USER PROGRAM [ARGUMENT...]`` changes to USER (``-`` keeps the present one), asks
the kernel to send SIGNAL when the parent dies, and executes PROGRAM. It is a separate program because the
alternative, ``preexec_fn``, is unsafe in processes with threads (Python warns of it since 3.12). The order
matters: a change of the user clears the parent-death signal, and the parent may have died before the signal
was requested.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Change the user, set the parent-death signal and execute the program; does not return."""
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
