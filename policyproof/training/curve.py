"""The learning curve as a picture: an SVG, written by hand, so that no plotting library is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 96, 40, 48
"""The margins around the axes."""

COLOURS = {"success": "#1a7f37", "unsafe": "#cf222e", "stuck": "#9a6700", "unfinished": "#57606a"}


def learning_curve(steps: Sequence[int], rates: Mapping[str, Sequence[float]], *, title: str) -> str:
    """The rates (name -> one value for each number of steps) over the steps of training."""
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    last = max([*steps, 1])

    def place(step: float, rate: float) -> str:
        return f"{LEFT + across * step / last:.1f},{TOP + up * (1 - rate):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="14">{escape(title)}</text>',
    ]
    for quarter in range(5):
        height = TOP + up * (1 - quarter / 4)
        parts.append(f'<path d="M{LEFT} {height:.1f}h{across}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{25 * quarter} %</text>')
    for half in range(3):
        x = LEFT + across * half / 2
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 24}" text-anchor="middle">{last * half // 2:,}</text>')
    parts.append(f'<text x="{LEFT + across / 2}" y="{HEIGHT - 6}" text-anchor="middle">steps in the environment</text>')
    labels: list[float] = []
    for name, values in rates.items():
        colour = COLOURS[name]
        points = " ".join(place(step, rate) for step, rate in zip(steps, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # Labels that would cover each other are moved apart.
        height = TOP + up * (1 - (values[-1] if values else 0.0)) + 4
        while any(abs(height - other) < 13 for other in labels):
            height -= 13
        labels.append(height)
        parts.append(f'<text x="{LEFT + across + 6}" y="{height:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])
