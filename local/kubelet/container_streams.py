"""The streams of a container's process: pipes or a terminal, whose output goes into its log."""

from __future__ import annotations

import asyncio
import os
import pty

from fluxqueue.local.kubelet.container_log import ContainerLog
from fluxqueue.local.kubelet.specs import Container

__all__ = ["ContainerStreams"]

_AFTER_END_S = 1.0
"""How long output is awaited after the end of the process; what it has started is dead by then."""
_READ = 64 << 10


class ContainerStreams:
    """The streams of one run of a container.

    Parameters
    ----------
    container
        Says whether it has a terminal, and whether its standard input is open.
    log
        Gets its output.

    Attributes
    ----------
    stdin, terminal
        Our ends; None if it has none, or once they are closed.
    theirs
        Standard input, output and error of the process.
    """

    def __init__(self, container: Container, log: ContainerLog) -> None:
        self.stdin: int | None = None
        self.terminal: int | None = None
        self._log = log
        self._outputs: dict[int, str] = {}
        self._ends: dict[int, asyncio.Future[None]] = {}
        if container.tty:
            self.terminal, slave = pty.openpty()
            self.stdin = self.terminal if container.stdin else None
            self._outputs = {self.terminal: "stdout"}
            self.theirs = (slave, slave, slave)
            return
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self._outputs = {out: "stdout", err: "stderr"}
        if container.stdin:
            in_end, self.stdin = os.pipe()
            os.set_blocking(self.stdin, False)
        else:
            in_end = os.open(os.devnull, os.O_RDONLY)
        self.theirs = (in_end, out_end, err_end)

    def started(self) -> None:
        """Leave their ends to the process, and read its output from now on."""
        self._leave()
        loop = asyncio.get_running_loop()
        for descriptor in self._outputs:
            os.set_blocking(descriptor, False)
            self._ends[descriptor] = loop.create_future()
            loop.add_reader(descriptor, self._read, descriptor)

    def failed(self) -> None:
        """Close everything: there is no process."""
        self._leave()
        for descriptor in self._outputs:
            os.close(descriptor)
        if self.terminal is None and self.stdin is not None:
            os.close(self.stdin)
        self.stdin = self.terminal = None
        self._log.close()

    def close_stdin(self) -> None:
        """Close the standard input, for example after the only attachment has ended."""
        if self.stdin is not None and self.stdin != self.terminal:
            os.close(self.stdin)
        self.stdin = None

    async def close(self) -> None:
        """Read what is left of the output, and close everything: the process has ended."""
        await asyncio.wait(self._ends.values(), timeout=_AFTER_END_S)
        for descriptor in self._ends:
            self._close(descriptor)
        self.close_stdin()
        self._log.close()

    def _leave(self) -> None:
        for descriptor in set(self.theirs):
            os.close(descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _READ)
        except BlockingIOError:
            return
        except OSError:  # no process has the other end of the terminal any more
            data = b""
        if data:
            self._log.write(self._outputs[descriptor], data)
        else:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        end = self._ends[descriptor]
        if end.done():
            return
        asyncio.get_running_loop().remove_reader(descriptor)
        if descriptor == self.terminal:
            self.stdin = self.terminal = None
        os.close(descriptor)
        end.set_result(None)
