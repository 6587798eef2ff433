"""A picture of the recovery times, by crash point."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["recovery_picture"]

_ROW, _LEFT, _WIDTH, _TOP = 20, 300, 560, 46


def recovery_picture(points: Mapping[str, tuple[float, float, int]], bound_s: float = 15.0) -> str:
    """Draw an SVG: for each point a bar to the median and a tick at the longest time.

    Parameters
    ----------
    points
        Median and maximum in seconds, and the number of crashes.
    bound_s
        The documented bound; drawn as a line.
    """
    longest = max((longest for _, longest, _ in points.values()), default=1.0)
    scale = _WIDTH / max(longest * 1.05, bound_s * 1.05)
    height = _TOP + _ROW * len(points) + 34
    total = sum(number for _, _, number in points.values())
    title = f"Seconds from kill -9 to the end of the first scheduling cycle after it ({total} crashes)"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 90} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{title}</text>',
        '<text x="10" y="36" fill="#555">bar: median; tick: longest; dashed: the documented bound</text>',
    ]
    for number, (name, (median, most, crashes)) in enumerate(points.items()):
        y = _TOP + number * _ROW
        end = _LEFT + most * scale
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect x="{_LEFT}" y="{y + 4}" width="{median * scale:.1f}" height="{_ROW - 8}" fill="#4878a8"/>'
        )
        parts.append(
            f'<path d="M{_LEFT + median * scale:.1f} {y + 10}H{end:.1f}M{end:.1f} {y + 4}v12" stroke="#222" '
            'fill="none"/>'
        )
        parts.append(
            f'<text x="{end + 6:.1f}" y="{y + 14}" fill="#555">{median:.1f} / {most:.1f} s, '
            f"n={crashes}</text>"
        )
    bottom = _TOP + _ROW * len(points)
    x = _LEFT + bound_s * scale
    parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#a33" stroke-dasharray="4 3"/>')
    parts += [
        (
            f'<text x="{_LEFT + second * scale:.1f}" y="{bottom + 16}" text-anchor="middle" '
            f'fill="#555">{second}</text>'
        )
        for second in range(0, int(bound_s) + 1, 3)
    ]
    return "\n".join([*parts, "</svg>", ""])
