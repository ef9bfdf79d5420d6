"""Draw the pictures of the control benchmarks: cruise-control.svg, verticalcas.svg, pendulum.svg, cartpole.svg.

    python -m docs.make_control_pictures

Decisions are those of the bundled policies, runs are those of the models; a test draws all again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import policyproof as pp
from docs.make_picture import BAD, FAINT, GOOD, INK, PERSON, ROBOT, text
from policyproof.engines.simulation import Simulator
from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.training.viability import Grid, among_viable, viable
from policyproof.zoo.cartpole import cartpole
from policyproof.zoo.cruise_control import CHANGES, cruise_control
from policyproof.zoo.cruise_control_policies import FOLDER as CRUISE
from policyproof.zoo.pendulum import pendulum
from policyproof.zoo.verticalcas import LABELS, verticalcas
from policyproof.zoo.verticalcas_policies import FOLDER as VERTICAL

TARGET = Path(__file__).parent / "images"
PAPER, LINE = "#f7f9fb", "#d5dce3"


def drawing(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    return "\n".join([head, box(0, 0, width, height, "#ffffff"), *parts, "</svg>"]) + "\n"


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{stroke}"/>'


def stroke(points: Sequence[tuple[float, float]], colour: str, width: float = 2) -> str:
    path = " ".join(f"{x:.4g},{y:.4g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def runs(row: Sequence[int]) -> list[tuple[int, int, int]]:
    """Equal neighbours of a row of cells: (first, count, value)."""
    found: list[tuple[int, int, int]] = []
    for place, value in enumerate(row):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], found[-1][1] + 1, value)
        else:
            found.append((place, 1, value))
    return found


def cells(
    table: np.ndarray, colours: Mapping[int, str], left: float, top: float, width: float, height: float
) -> list[str]:
    """`table[row, column]` as coloured cells, equal neighbours in one."""
    return [
        box(left + first * width, top + number * height, count * width, height, colours[value])
        for number, row in enumerate(table.tolist())
        for first, count, value in runs(row)
        if value in colours
    ]


def legend(entries: Sequence[tuple[str, str]], x: float, y: float, step: float) -> list[str]:
    parts = []
    for number, (words, colour) in enumerate(entries):
        parts += [
            box(x + number * step, y - 11, 14, 14, colour, LINE),
            text(x + number * step + 20, y, words, size=13),
        ]
    return parts


def labels_in(model: LoadedModel, policy: pp.Policy, states: Mapping[str, np.ndarray]) -> np.ndarray:
    """The output that the policy chooses in states given by the values of their variables."""
    flat = flatten(model.model)
    simulator = Simulator(flat, policy)
    count = len(next(iter(states.values())))
    table = np.zeros((count, len(flat.variables)), dtype=np.int64)
    for number, item in enumerate(flat.variables):
        if item.name in states:
            values = np.asarray(states[item.name], dtype=np.float64)
            table[:, number] = values.view(np.int64) if item.domain.kind == "real" else values.astype(np.int64)
    decider = simulator.successors.decider
    assert decider is not None
    return decider.decide(table)


# Cruise control: what both policies do behind a car of medium speed, and how the trusting one ends

COLOURS = {0: "#a5d6a7", 1: "#e3e8ee", 2: "#f4a9a0"}


def cruise_picture() -> str:
    model = cruise_control()
    lead, cell, left = 3, 17, 70
    parts = [text(24, 32, "Behind a car that drives 3 units fast", size=18, style='font-weight="700"')]
    top = 70
    for name in ("prudent", "trusting"):
        policy = pp.load_policy(CRUISE / f"cruise-control-{name}.json", model)
        gap, own = (part.ravel() for part in np.meshgrid(np.arange(1, 31), np.arange(6, -1, -1)))
        chosen = labels_in(model, policy, {"gap": gap, "own": own, "lead": np.full(len(gap), lead)})
        answer = pp.verify(model, policy)
        parts += [
            text(left, top - 10, f"{name} policy", style='font-weight="600"'),
            text(left + 30 * cell + 20, top + 18, answer.verdict.upper(), size=15,
                 colour=GOOD if answer.verdict == "holds" else BAD, style='font-weight="700"'),
            *cells(chosen.reshape(7, 30), COLOURS, left, top, cell, cell),
            *[text(left - 16, top + (6 - speed) * cell + 13, str(speed), size=11, colour=FAINT) for speed in range(7)],
        ]  # fmt: skip
        if answer.trace is not None:
            states = [state.variables for state in answer.trace.states]
            for number, state in enumerate(states):
                words = f"step {number}: gap {state['gap']}, own {state['own']}, lead {state['lead']}"
                place = top + 36 + 15 * number
                parts.append(
                    text(left + 30 * cell + 20, place, words, size=12, colour=BAD if state["gap"] == 0 else INK)
                )
        top += 7 * cell + 56
    bottom = top - 40
    parts += [
        text(left + gap * cell - 13, bottom, str(gap), size=11, colour=FAINT) for gap in (1, 5, 10, 15, 20, 25, 30)
    ]
    parts += [text(left + 15 * cell - 12, bottom + 18, "gap", size=12, colour=FAINT)]
    parts += [
        f'<g transform="translate(30 {top - 190}) rotate(-90)">{text(0, 0, "own speed", size=12, colour=FAINT)}</g>'
    ]
    parts += legend([(label, COLOURS[number]) for number, label in enumerate(CHANGES)], left, bottom + 44, 120)
    return drawing(820, int(bottom + 62), parts)


# Vertical collision avoidance: the advisories in level flight, and a run

ADVICE = {
    "COC": "#eef1f4", "DNC": "#bbdefb", "DND": "#ffe0b2", "DES1500": "#64b5f6", "CL1500": "#ffb74d",
    "SDES1500": "#1e88e5", "SCL1500": "#fb8c00", "SDES2500": "#0d47a1", "SCL2500": "#e65100",
}  # fmt: skip


def vertical_picture() -> str:
    model = verticalcas()
    policy = pp.load_policy(VERTICAL / "policy.json", model)
    left, top, wide, high = 90, 70, 13, 5
    heights = np.arange(600, -601, -15)
    tau, h = (part.ravel() for part in np.meshgrid(np.arange(40, 0, -1), heights))
    rows, bottom = len(heights), top + len(heights) * high
    parts = [
        text(24, 32, "What our networks advise in level flight", size=18, style='font-weight="700"'),
        text(24, 52, "by the seconds until they meet and the intruder's height; 8 ft/s of descent on the right",
             size=13, colour=FAINT),
    ]  # fmt: skip
    seen: set[int] = set()
    for panel, climb_rate in enumerate((0.0, -8.0)):
        start = left + panel * (40 * wide + 40)
        states = {"tau": tau, "h": h, "v": np.full(len(h), climb_rate), "adv": np.ones(len(h))}
        chosen = labels_in(model, policy, states)
        seen |= set(chosen.tolist())
        colours = {number: ADVICE[label] for number, label in enumerate(LABELS)}
        parts += cells(chosen.reshape(rows, 40), colours, start, top, wide, high)
        for seconds in (40, 30, 20, 10, 1):
            parts.append(text(start + (40 - seconds) * wide, bottom + 16, f"{seconds}", size=11, colour=FAINT))
        for edge in (100, -100):
            y = top + (600 - edge) / 15 * high + high / 2
            parts.append(stroke([(start, y), (start + 40 * wide, y)], BAD, 0.8))
    for height in (600, 300, 100, -100, -300, -600):
        y = top + (600 - height) / 15 * high + high / 2 + 4
        parts.append(text(left - 8, y, f"{height} ft", size=11, colour=FAINT, style='text-anchor="end"'))
    parts += legend([(LABELS[number], ADVICE[LABELS[number]]) for number in sorted(seen)], left, bottom + 44, 110)
    return drawing(left + 80 * wide + 64, bottom + 62, parts)


# The pendulum: from where it can be kept up


def pendulum_picture() -> str:
    left, top, side, points = 80, 60, 400, 100
    model = pendulum()
    prop = model.property()
    assert isinstance(prop, SafetyProperty)
    grid = Grid(("angle", "angular_velocity"), (-np.pi / 4, -4.0), (np.pi / 4, 4.0), (601, 601))
    known = viable(flatten(model.model), prop, grid, steps=200, cautious=False)
    angles = (np.arange(points) + 0.5) / points * np.pi / 2 - np.pi / 4
    velocities = 1 - (np.arange(points) + 0.5) / points * 2
    angle, velocity = (part.ravel() for part in np.meshgrid(angles, velocities))
    found = among_viable(grid, known, np.stack([angle, velocity], axis=1), cautious=False)
    table = found.reshape(points, points).astype(int)
    parts = [
        text(24, 32, "From where can the pole be kept up?", size=18, style='font-weight="700"'),
        box(left, top, side, side, "#fbe4e1"),
        *cells(table, {1: "#c8e6c9"}, left, top, side / points, side / points),
    ]
    for words, x in (("-45°", -1.0), ("0", 0.0), ("45°", 1.0)):
        parts.append(text(left + (x + 1) / 2 * side, top + side + 18, words, size=12, colour=FAINT,
                          style='text-anchor="middle"'))  # fmt: skip
    for words, y in (("1 rad/s", 1.0), ("0", 0.0), ("-1 rad/s", -1.0)):
        parts.append(text(left - 8, top + (1 - y) / 2 * side + 4, words, size=12, colour=FAINT,
                          style='text-anchor="end"'))  # fmt: skip
    # Two runs under a controller that pushes against the fall: one from each part.
    for start, colour in (((0.36, -0.75), GOOD), ((-0.62, 0.6), BAD)):
        parts.append(stroke(_pushed_run(start, left, top, side), colour))
    beside = left + side + 24
    parts += [
        text(beside, top + 20, "green: some torques keep it up for 200 steps", size=13, colour=GOOD),
        text(beside, top + 42, "red: none do, it falls", size=13, colour=BAD),
        text(beside, top + 76, "The lines are two runs of a controller", size=13),
        text(beside, top + 94, "that pushes against the fall.", size=13),
        text(left + side / 2, top + side + 40, "angle from upright", size=13, style='text-anchor="middle"'),
    ]
    return drawing(beside + 300, top + side + 56, parts)


def _pushed_run(start: tuple[float, float], left: float, top: float, side: float) -> list[tuple[float, float]]:
    angle, velocity = start
    points = []
    for _ in range(200):
        if abs(angle) > np.pi / 4 or abs(velocity) > 1:
            break
        points.append((left + (angle / (np.pi / 4) + 1) / 2 * side, top + (1 - velocity) / 2 * side))
        torque = -2 if angle * np.sqrt(15) + velocity > 0 else 2
        velocity += (15 * np.sin(angle) + 3 * torque) * 0.05
        angle += velocity * 0.05
    return points


# The cartpole: what happens if it is always pushed to the right


def cartpole_picture() -> str:
    model = cartpole()
    flat = flatten(model.model)
    simulator = Simulator(flat)
    words = simulator.layout.pack(np.zeros((1, len(flat.variables)), dtype=np.int64))
    right = [flat.labels.index("right")]
    left, ground, unit, pole = 100, 190, 900, 120
    parts = [text(24, 32, "Pushed to the right for a fifth of a second", size=18, style='font-weight="700"'),
             stroke([(left - 40, ground + 20), (left + 560, ground + 20)], LINE)]  # fmt: skip
    shown = (0, 3, 6, 8, 9, 10)
    for step in range(shown[-1] + 1):
        values = simulator.named(simulator.layout.unpack(words)[0])
        if step in shown:
            # Drawn side by side: the cart moves only a few centimetres.
            x = left + shown.index(step) * 100 + values["position"] * unit / 10
            top = (x + pole * np.sin(values["angle"]), ground - pole * np.cos(values["angle"]))
            fallen = abs(values["angle"]) > np.pi / 15
            parts += [
                box(round(x - 24, 2), ground, 48, 18, ROBOT),
                stroke([(x, ground), top], BAD if fallen else PERSON, 5),
                text(round(x - 16, 2), ground + 40, f"step {step}", size=12, colour=FAINT),
                text(round(x - 16, 2), ground + 58, f"{np.degrees(values['angle']):.1f}°", size=12),
            ]
        words = simulator.generator.expand(words, right).words
    return drawing(700, ground + 76, parts)


PICTURES: Mapping[str, Callable[[], str]] = {
    "cruise-control.svg": cruise_picture,
    "verticalcas.svg": vertical_picture,
    "pendulum.svg": pendulum_picture,
    "cartpole.svg": cartpole_picture,
}

if __name__ == "__main__":
    for file, picture in PICTURES.items():
        (TARGET / file).write_text(picture(), encoding="utf-8")
