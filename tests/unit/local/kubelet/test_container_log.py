import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fluxqueue.local.kubelet.container_log import LONGEST_LINE, ContainerLog, LogOptions


async def text(log: ContainerLog, **options: object) -> bytes:
    return b"".join([part async for part in log.read(LogOptions(**options))])  # type: ignore[arg-type]


async def test_lines_are_kept_with_their_time_and_stream(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"problem\n")
    log.write("stdout", b"o\nrest")
    log.close()
    assert await text(log) == b"one\nproblem\ntwo\nrest"
    assert await text(log, stream="stderr") == b"problem\n"
    assert await text(log, tail=2) == b"two\nrest"
    assert await text(log, tail=0) == b""
    assert await text(log, limit_bytes=5) == b"one\np"
    assert await text(log, since=datetime.now(UTC) + timedelta(hours=1)) == b""
    stamped = (await text(log, timestamps=True)).split(b"\n")[0].split(b" ")
    assert datetime.fromisoformat(stamped[0].decode()).tzinfo is not None
    assert stamped[1] == b"one"


async def test_a_long_line_is_one_line_again(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    line = b"x" * (3 * LONGEST_LINE + 5) + b"\n"
    log.write("stdout", line)
    log.close()
    assert await text(log) == line


async def test_a_followed_log_goes_on_until_the_container_ends(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most_bytes=400)
    reading = asyncio.create_task(text(log, follow=True))
    expected = b""
    for number in range(40):
        line = f"line {number}\n".encode()
        log.write("stdout", line)
        expected += line
        await asyncio.sleep(0.001)
    log.close()
    assert await asyncio.wait_for(reading, 30) == expected


async def test_a_log_is_bounded(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most_bytes=1000)
    for number in range(1000):
        log.write("stdout", f"line {number}\n".encode())
    log.close()
    assert (tmp_path / "0.log").stat().st_size + (tmp_path / "0.log.old").stat().st_size <= 2000
    assert (await text(log)).endswith(b"line 999\n")


async def test_who_listens_gets_what_comes_from_now_on(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    log.write("stdout", b"before")
    queue = log.listen()
    log.write("stdout", b"after")
    log.close()
    assert [queue.get_nowait(), queue.get_nowait()] == [("stdout", b"after"), None]


async def test_who_listens_too_slowly_hears_of_the_end(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log")
    queue = log.listen()
    for _ in range(queue.maxsize + 1):
        log.write("stdout", b"x")
    log.close()
    assert [queue.get_nowait() for _ in range(queue.maxsize)][-1] is None


async def test_a_reader_that_pauses_gets_the_older_file_too(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most_bytes=1000)
    log.write("stdout", b"first\n")
    reading = log.read(LogOptions(follow=True))
    assert await anext(reading) == b"first\n"
    # the end of the first file, the second, and a part of the third
    lines = [f"line {number}\n".encode() for number in range(50)]
    for line in lines:
        log.write("stdout", line)
    log.close()
    assert b"".join([part async for part in reading]) == b"".join(lines)


async def test_what_a_slow_reader_has_lost_is_said(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "0.log", most_bytes=1000)
    log.write("stdout", b"first\n")
    reading = log.read(LogOptions(tail=1, follow=True))
    assert await anext(reading) == b"first\n"
    for number in range(1000):
        log.write("stdout", f"line {number}\n".encode())
    log.close()
    rest = b"".join([part async for part in reading])
    kept = await text(log)
    assert rest.endswith(b"]\n" + kept)
    said = rest.removesuffix(kept).splitlines()
    assert said[:-1] == [f"line {number}".encode() for number in range(len(said) - 1)]
    skipped = range(len(said) - 1, 1000 - kept.count(b"\n"))
    overhead = len("2026-11-26T20:00:00.000000000Z stdout F ")
    lost = sum(overhead + len(f"line {number}\n") for number in skipped)
    assert (
        said[-1] == f"[{lost} bytes of the log were lost here: it was read more slowly than written]".encode()
    )
