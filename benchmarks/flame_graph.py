"""A flame graph of one of our programs as a static SVG file, and which part of the code takes how much of its
CPU time.

The input are folded stacks, one line for each stack with the number of its samples, as
``py-spy record -f raw`` writes them (``queue_cpu.py --flame FILE.txt``). A bar is a function, as wide as its
share of the samples; the functions that it calls are above it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

AREAS: Mapping[str, str] = {
    "changes of objects, handed to all rooms": r"kube/object_cache\.py",
    "watches: reading and decoding": r"kube/(reflector|decoding)\.py|_whole_lines",
    "statements and transactions": r"psycopg|store/(transactions|database)\.py",
    "calls of the matcher": r"\bgrpc/|fluxion/rpc/",
    "requests to the API server": r"kube/(wire|transport)\.py|aiohttp/",
    "scheduling cycles": r"queue/scheduling/",
    "slots and ends of pods": r"queue/tracking/",
    "intake": r"queue/intake/",
    "releases": r"queue/release/",
    "FluxJobs, FluxQueues, Events": r"queue/status/",
    "rows and the ledger": r"queue/store/",
}
"""Areas of the queue by functions in a stack; the first that matches has the stack."""
REST = "event loop, TLS, garbage collection"

_COLOURS = (
    *("#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c77d0a", "#5c8a8a"),
    *("#b08968", "#4a4e69", "#6b9080", "#a44a3f", "#33658a", "#9a9a9a"),
)
_WIDTH, _ROW, _TOP = 1180, 15, 30
_NARROWEST = 0.003
_LINE = re.compile(r":\d+\)$")
_LOOP = "Runner.run "
_CHARACTER = 5.6

Stacks = Mapping[tuple[str, ...], int]


def read_stacks(lines: Iterable[str]) -> Stacks:
    """Return the number of samples of each stack of functions, outermost first,
    below what starts the event loop.
    """
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        frames, _, count = line.rstrip("\n").rpartition(" ")
        if frames and count.isdigit():
            stack = tuple(_LINE.sub(")", frame) for frame in frames.split(";"))
            begins = next((number for number, frame in enumerate(stack) if frame.startswith(_LOOP)), 0)
            stacks[stack[begins:]] += int(count)
    return stacks


def shares(stacks: Stacks) -> dict[str, float]:
    """Return the part of the samples of each area, the largest first."""
    samples: Counter[str] = Counter()
    for stack, count in stacks.items():
        samples[_area(stack)] += count
    total = samples.total() or 1
    return {area: count / total for area, count in samples.most_common()}


def draw(stacks: Stacks, title: str) -> str:
    """Return the flame graph; functions with less than 3 of 1,000 samples are left out."""
    root = _Call("")
    for stack, count in stacks.items():
        root.add(stack, count, _area(stack))
    bars = [bar for bar in root.bars(0.0, 0, root.samples) if bar.width >= _NARROWEST]
    areas = [*AREAS, REST]
    depth = max((bar.depth for bar in bars), default=0)
    height = _TOP + (depth + 2) * _ROW + _ROW * ((len(areas) + 3) // 4)
    parts = [f'<text x="6" y="18" font-size="13">{escape(title)}</text>']
    for bar in bars:
        left, top, width = 4 + bar.left * _WIDTH, _TOP + (depth - bar.depth) * _ROW, bar.width * _WIDTH
        text = bar.name.partition(" (")[0]
        shown = (
            text if len(text) * _CHARACTER < width - 4 else text[: max(int((width - 4) / _CHARACTER) - 1, 0)]
        )
        parts.append(
            (
                f'<g><title>{escape(bar.name)}: {bar.width:.1%}</title><rect x="{left:.1f}" y="{top}" '
                f'width="{max(width - 0.4, 0.3):.1f}" height="{_ROW - 1}" '
                f'fill="{_COLOURS[areas.index(bar.area) % len(_COLOURS)]}" fill-opacity="0.55"/>'
            )
            + (f'<text x="{left + 2:.1f}" y="{top + 11}">{escape(shown)}</text>' if len(shown) > 2 else "")
            + "</g>"
        )
    for number, area in enumerate(areas):
        left, top = 6 + number % 4 * 290, _TOP + (depth + 2) * _ROW + number // 4 * _ROW
        parts.append(
            f'<rect x="{left}" y="{top}" width="10" height="10" fill="{_COLOURS[number % len(_COLOURS)]}" '
            'fill-opacity="0.55"/>'
        )
        parts.append(f'<text x="{left + 14}" y="{top + 9}">{escape(area)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 8} {height}" '
        'font-family="sans-serif" font-size="10">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    name: str
    area: str
    left: float
    width: float
    depth: int


@dataclass(slots=True)
class _Call:
    """A function in one chain of calls, with the samples in it and below it."""

    name: str
    samples: int = 0
    areas: Counter[str] = field(default_factory=Counter)
    calls: dict[str, _Call] = field(default_factory=dict)

    def add(self, stack: Sequence[str], count: int, area: str) -> None:
        call = self
        for name in ("", *stack):
            call = call.calls.setdefault(name, _Call(name)) if name else call
            call.samples += count
            call.areas[area] += count

    def bars(self, left: float, depth: int, total: int) -> Iterator[_Bar]:
        for name in sorted(self.calls):
            call = self.calls[name]
            width = call.samples / max(total, 1)
            yield _Bar(name, call.areas.most_common(1)[0][0], left, width, depth)
            yield from call.bars(left, depth + 1, total)
            left += width


def _area(stack: Sequence[str]) -> str:
    whole = ";".join(stack)
    return next((area for area, pattern in AREAS.items() if re.search(pattern, whole)), REST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stacks", type=Path, help="folded stacks")
    parser.add_argument("picture", type=Path, help="the SVG file to be written")
    parser.add_argument("--title", default="CPU time of the queue")
    parser.add_argument(
        "--per-job-ms", type=float, default=0.0, help="CPU time of one Job, to be divided in the table"
    )
    arguments = parser.parse_args()
    with arguments.stacks.open() as lines:
        stacks = read_stacks(lines)
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    arguments.picture.write_text(draw(stacks, arguments.title))
    print("| part of the queue | share | ms of a Job |\n|---|---|---|")
    for area, share in shares(stacks).items():
        print(f"| {area} | {share:.0%} | {share * arguments.per_job_ms:.2f} |")


if __name__ == "__main__":
    main()
