"""Draw docs/images/warehouse.svg: the bundled example, what was found out about its two policies, and how.

    python docs/make_picture.py

Everything in the picture comes from the answers themselves; a test draws it again and compares.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import policyproof as pp
from policyproof.zoo import warehouse as example

TARGET = Path(__file__).parent / "images" / "warehouse.svg"
POLICIES = Path(example.__file__).parent / "policies"
WIDTH, HEIGHT, AISLES = 8, 5, (2, 5)
CELL, LEFT, TOP = 56, 40, 92
INK, FAINT, ROBOT, PERSON, BAD, GOOD = "#1f2933", "#7b8794", "#1565c0", "#e08600", "#c62828", "#2e7d32"


def centre(x: int, y: int) -> tuple[float, float]:
    """The middle of a cell; y grows upwards in the model."""
    return LEFT + (x + 0.5) * CELL, TOP + (HEIGHT - y - 0.5) * CELL


def text(x: float, y: float, words: str, *, size: int = 14, colour: str = INK, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" {style}>{escape(words)}</text>'


def line(points: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="3" stroke-opacity="0.45"/>'


def dot(place: tuple[float, float], words: str, colour: str, radius: int = 12) -> str:
    x, y = place
    label = text(x, y + 4.5, words, size=13, colour="#ffffff", style='text-anchor="middle" font-weight="600"')
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" fill="{colour}"/>{label}'


def grid() -> list[str]:
    parts = []
    for x in range(WIDTH):
        for y in range(HEIGHT):
            fill = "#fff3dc" if x in AISLES else "#f7f9fb"
            corner = f'x="{LEFT + x * CELL}" y="{TOP + y * CELL}" width="{CELL}" height="{CELL}"'
            parts.append(f'<rect {corner} fill="{fill}" stroke="#d5dce3"/>')
    x, y = centre(WIDTH - 1, HEIGHT // 2)
    parts.append(f'<rect x="{x - 13:g}" y="{y - 13:g}" width="26" height="26" rx="3" fill="#8d6e63"/>')
    parts.append(text(x, y + 5, "P", colour="#ffffff", style='text-anchor="middle" font-weight="600"'))
    return parts


def journey(trace: pp.Trace) -> list[str]:
    """Where the robot and the person that it meets were, step by step."""
    states = [state.variables for state in trace.states]
    robot = [centre(int(state["x"]), int(state["y"])) for state in states]
    met = AISLES.index(int(states[-1]["x"]))
    person = [centre(AISLES[met], int(state[f"person{met}"])) for state in states]
    parts = [line(robot, ROBOT), line(person, PERSON)]
    # A cell in which somebody stays for a while is numbered with the first and the last step there.
    for places, colour in ((robot, ROBOT), (person, PERSON)):
        for place in dict.fromkeys(places[:-1]):
            steps = [number for number, where in enumerate(places[:-1]) if where == place]
            words = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}–{steps[-1]}"
            parts.append(dot(place, words, colour, 12 if len(steps) == 1 else 17))
    x, y = robot[-1]
    parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="21" fill="none" stroke="{BAD}" stroke-width="3"/>')
    parts.append(dot(robot[-1], f"{len(states) - 1}", BAD, 14))
    return parts


def verdict(y: int, name: str, answer: pp.Answer, extra: str) -> list[str]:
    x = LEFT + WIDTH * CELL + 36
    statistics = answer.result.statistics
    safe, unsafe = statistics["start_states_safe"], statistics["start_states_unsafe"]
    shares = f"{safe} safe, {unsafe} unsafe"
    colour = GOOD if answer.verdict == "holds" else BAD
    return [
        text(x, y, name, size=16, style='font-weight="600"'),
        f'<rect x="{x}" y="{y + 12}" width="116" height="28" rx="5" fill="{colour}"/>',
        text(x + 58, y + 32, answer.verdict.upper(), colour="#ffffff", style='text-anchor="middle" font-weight="700"'),
        text(x, y + 62, answer.reason),
        text(
            x,
            y + 83,
            f"{statistics['start_states']} start states: {shares}; reachable states: {statistics['states']:,}",
            colour=FAINT,
            size=13,
        ),
        text(x, y + 103, extra, colour=FAINT, size=13),
    ]


def picture() -> str:
    model = example.warehouse(WIDTH, HEIGHT, AISLES)
    hasty, careful = (pp.load_policy(POLICIES / f"warehouse-{name}.json", model) for name in ("hasty", "careful"))
    refuted = pp.verify(model, hasty, all_starts=True)
    proved = pp.verify(model, careful, all_starts=True)
    assert refuted.trace is not None
    checked = pp.replay(model.model, refuted.trace, refuted.question, hasty)
    assert checked.accepted
    below = TOP + HEIGHT * CELL + 26
    width, height = LEFT + WIDTH * CELL + 412, below + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        text(LEFT, 40, "Does the robot ever run into somebody?", size=20, style='font-weight="700"'),
        text(LEFT, 66, "It fetches the parcel P. In two aisles people walk up and down as they like.", colour=FAINT),
        *grid(),
        *journey(refuted.trace),
        *verdict(TOP + 14, "hasty policy", refuted,
                 "the trace on the left, accepted by the independent replay"),
        *verdict(TOP + 160, "careful policy", proved, "every reachable state was visited"),
        dot((LEFT + 12, below), "", ROBOT, 7),
        text(LEFT + 26, below + 5, "robot", size=13),
        dot((LEFT + 84, below), "", PERSON, 7),
        text(LEFT + 98, below + 5, "the person it meets", size=13),
        dot((LEFT + 234, below), "", BAD, 7),
        text(LEFT + 248, below + 5, "both in one cell; the numbers are steps", size=13),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
