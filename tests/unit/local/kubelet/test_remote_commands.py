"""The output of a command arrives whole, however slowly it is read."""

import asyncio
import os
import sys

_SCRIPT = """
import asyncio, os
from fluxqueue.local.kubelet import remote_commands
from fluxqueue.local.kubelet.children import Children, Entry, kill_descendants
from fluxqueue.local.kubelet.remote_commands import _connected, _Streams
from fluxqueue.local.kubelet.sessions import SessionOptions
remote_commands._OUTPUT_AFTER_END_S = 0.01

class SlowReader:
    def __init__(self):
        self.sizes, self.child, self.got = asyncio.Queue(), None, 0
    async def read(self):
        return None
    async def write(self, stream, data):
        await self.child.ended
        await asyncio.sleep(0.1)
        self.got += len(data)
    async def gone(self):
        await asyncio.Event().wait()

async def main():
    children = Children()
    children.watch()
    session = SlowReader()
    with _Streams(SessionOptions(False, True, True, False)) as streams:
        words = ["sh", "-c", "sleep 600 & echo; sleep 0.2; head -c 50000 /dev/zero"]
        session.child = child = await children.start(Entry(words, "/"), {**os.environ}, *streams.theirs)
        streams.started()
        code = await _connected(session, child, streams)
    print(code, session.got)
    kill_descendants()

asyncio.run(main())
"""


async def test_output_arrives_whole_although_its_reader_is_slow() -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SCRIPT, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    output, _ = await asyncio.wait_for(agent.communicate(), 120)
    assert output == b"0 50001\n"
