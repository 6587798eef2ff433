"""An animated SVG of commands in a terminal and their output, for a page: one file, with nothing in it from
elsewhere.

It shows a loop: each command is typed, its output appears, and the lines move up as in a terminal. CSS does
this without any script, so a browser runs it inside an ``<img>``. Whoever prefers less motion sees one frame
that stands still.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["COLUMNS", "Take", "render"]

COLUMNS = 108
"""Width of the terminal, in characters."""
_ROWS = 30
_LINE_PX = 18
_CHARACTER_PX = 7.25
_MARGIN_PX = 16
_TYPED_AT_ONCE = 2
_KEYSTROKES_S = 0.09
_BEFORE_OUTPUT_S = 0.35
_END_S = 4.0
_PROMPT = "$ "

_STYLE = """\
:root{--back:#f6f8fa;--text:#1f2328;--dim:#59636e;--command:#0550ae;--good:#116329;--wait:#7d4e00;\
--bad:#a40e26;--line:#d1d9e0}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--text:#e6edf3;--dim:#9198a1;--command:#79c0ff;\
--good:#7ee787;--wait:#e3b341;--bad:#ff7b72;--line:#3d444d}}
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
white-space:pre;fill:var(--text)}
.back{fill:var(--back);stroke:var(--line)}.prompt{fill:var(--dim)}.command{fill:var(--command);font-weight:600}
.good{fill:var(--good)}.wait{fill:var(--wait)}.bad{fill:var(--bad)}
"""
_STILL = "@media (prefers-reduced-motion:reduce){*{animation:none!important}}\n"
_WORDS = {
    "good": ("Running", "Completed", "Succeeded", "as expected"),
    "wait": ("Pending", "WaitingForNodes", "Held", "Allocated"),
    "bad": ("Cancelled", "Failed"),
}
_CLASS_OF = {word: name for name, words in _WORDS.items() for word in words}
_COLOURED = re.compile(rf"\b({'|'.join(_CLASS_OF)})\b")


@dataclass(frozen=True)
class Take:
    """A command, what it printed, and how long people look at that."""

    command: str
    output: tuple[str, ...]
    seconds: float
    still: bool = False
    """The frame that stands still ends with this output."""


@dataclass(frozen=True)
class _Event:
    """Something that appears, with the row below it."""

    at: float
    svg: str
    end_row: int


def render(takes: Sequence[Take], title: str, description: str) -> str:
    """Return the picture.

    Parameters
    ----------
    takes
        The commands in their order.
    title
        Its short name, for people who do not see it.
    description
        What happens in it, for the same people.
    """
    events, length, still_row = _events(takes)
    width = round(COLUMNS * _CHARACTER_PX) + 2 * _MARGIN_PX
    inner, inner_width = _ROWS * _LINE_PX, width - 2 * _MARGIN_PX
    height = inner + 2 * _MARGIN_PX
    shown = "\n".join(f'<g class="a{number}">{event.svg}</g>' for number, event in enumerate(events))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title description">\n'
        f'<title id="title">{escape(title)}</title>\n'
        f'<desc id="description">{escape(description)}</desc>\n'
        "<style>\n"
        f"{_STYLE}{_animations(events, length, still_row)}{_STILL}</style>\n"
        f'<rect class="back" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f'<svg x="{_MARGIN_PX}" y="{_MARGIN_PX}" width="{inner_width}" height="{inner}">\n'
        '<g class="all">\n'
        f"{shown}\n"
        "</g>\n"
        "</svg>\n"
        "</svg>\n"
    )


def _events(takes: Sequence[Take]) -> tuple[list[_Event], float, int]:
    """Return what appears, the length of the loop, and the row below the frame that stands still."""
    events: list[_Event] = []
    clock, row, still_row = 0.0, 0, 0
    for take in takes:
        for at, svg in _typed(take.command, row):
            events.append(_Event(clock + at, svg, row + 1))
        clock = events[-1].at + _BEFORE_OUTPUT_S
        output = [part for line in take.output for part in _wrapped(line)]
        lines = [_text(0, row + 1 + number, _coloured(line)) for number, line in enumerate(output) if line]
        row += 1 + len(output)
        events.append(_Event(clock, "".join(lines), row))
        still_row = row if take.still else still_row
        row += 1
        clock += take.seconds
    return events, clock + _END_S, still_row or row


def _wrapped(line: str) -> Iterator[str]:
    """Yield the rows of a line, broken where a terminal breaks it."""
    for begin in range(0, max(1, len(line)), COLUMNS):
        yield line[begin : begin + COLUMNS]


def _typed(command: str, row: int) -> Iterator[tuple[float, str]]:
    yield 0.0, _text(0, row, f'<tspan class="prompt">{_PROMPT}</tspan>')
    pieces = [command[begin : begin + _TYPED_AT_ONCE] for begin in range(0, len(command), _TYPED_AT_ONCE)]
    for number, piece in enumerate(pieces):
        column = len(_PROMPT) + number * _TYPED_AT_ONCE
        yield (
            0.6 + number * _KEYSTROKES_S,
            _text(column, row, f'<tspan class="command">{escape(piece)}</tspan>'),
        )


def _text(column: int, row: int, content: str) -> str:
    return f'<text x="{column * _CHARACTER_PX:g}" y="{row * _LINE_PX + 13}">{content}</text>'


def _coloured(line: str) -> str:
    """Return a line with its states in colours, each part at its column,
    whatever the width of the reader's font is.
    """
    parts, end = [], 0
    for match in _COLOURED.finditer(line):
        parts += [("", end, line[end : match.start()]), (_CLASS_OF[match[1]], match.start(), match[1])]
        end = match.end()
    parts.append(("", end, line[end:]))
    return "".join(span for name, begin, text in parts for span in _spans(name, begin, text))


def _spans(name: str, begin: int, text: str) -> Iterator[str]:
    for word in re.finditer(r"\S+(?: \S+)*", text):
        place = f' x="{(begin + word.start()) * _CHARACTER_PX:g}"'
        yield f"<tspan{place}{f' class={chr(34)}{name}{chr(34)}' if name else ''}>{escape(word[0])}</tspan>"


def _animations(events: Sequence[_Event], length: float, still_row: int) -> str:
    rules = [f"g{{animation:{length:.2f}s step-end infinite}}"]
    for number, event in enumerate(events):
        if event.at:
            rules.append(
                f"@keyframes a{number}{{0%{{opacity:0}}{_percent(event.at, length)}{{opacity:1}}}}.a"
                f"{number}{{animation-name:a{number}}}"
            )
    steps, last = ["0%{transform:none}"], 0
    for event in events:
        if (hidden := max(0, event.end_row - _ROWS)) > last:
            last = hidden
            steps.append(f"{_percent(event.at, length)}{{transform:translateY(-{hidden * _LINE_PX}px)}}")
    still = max(0, still_row - _ROWS) * _LINE_PX
    rules.append(
        f"@keyframes all{{{''.join(steps)}}}.all{{transform:translateY(-{still}px);animation-name:all}}"
    )
    return "\n".join(rules) + "\n"


def _percent(at: float, length: float) -> str:
    return f"{100 * at / length:.3f}%"
