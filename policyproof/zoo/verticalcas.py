"""Vertical collision avoidance: an advisory to the pilot once a second (NANES, section 4).

Two aircraft approach each other.  The intruder keeps its height; a system aboard the ownship advises its
pilot to climb or to descend, so that they are not within 100 ft of height when they meet.

    height                         - - - - - - - - - - - - - .  <- intruder
      |      ownship               ^
      |         \\                  |  h  (negative: the intruder is below)
      |           \\  v             v
      |             >  . . . . . . . . . . . . . . . . . . . .
      +------------------------------------------------------ time
                 tau seconds until they meet

State (h, v, tau, adv): the intruder's height above the ownship (ft), the ownship's climb rate (ft/s),
the seconds left, and the advisory that was given last.  Nine advisories are the labels; the policy is
nine networks, of which the last advisory picks one.  The pilot chooses an acceleration a among b
equally spaced ones that the advisory allows, or keeps the climb rate if it already complies:

    h' = h - v - a/2      v' = v + a      tau' = tau - 1      adv' = the advisory

`h` and `v` are unbounded; when no second is left the encounter is over and nothing happens any more.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

from policyproof.model.automata import Model
from policyproof.model.building import ModelBuilder, UpdateMap
from policyproof.model.expressions import FALSE, TRUE, Expression, constant, decimal, disjunction
from policyproof.model.grammar import parse_property
from policyproof.model.source import LoadedModel, from_model
from policyproof.policy.formats import read_network
from policyproof.policy.network import Network, Normalise
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

GRAVITY = Fraction(322, 10)
LONGEST = 40
"""Seconds: the longest encounter."""
NEAR = 100
"""Feet: closer than this in height is a near collision."""


@dataclass(frozen=True)
class Advisory:
    """An advisory, the accelerations that it allows (shares of g), and the climb rate that complies with it."""

    name: str
    weakest: Fraction
    strongest: Fraction
    sense: Literal["", "down", "up"] = ""
    rate: int = 0
    """In ft/min, without its sign."""

    def accelerations(self, count: int) -> tuple[Fraction, ...]:
        """`count` equally spaced ones; the middle one if it is one."""
        if self.weakest == self.strongest:
            return (self.weakest * GRAVITY,)
        if count == 1:
            return ((self.weakest + self.strongest) / 2 * GRAVITY,)
        step = (self.strongest - self.weakest) / (count - 1)
        return tuple((self.weakest + number * step) * GRAVITY for number in range(count))

    def complies(self, climb_rate: Expression, unit: Fraction) -> Expression:
        """Does the pilot already do what is advised?  `unit`: what `rate` is to be multiplied by."""
        limit = constant(self.rate * unit)
        if self.sense == "":
            return FALSE
        return climb_rate <= -limit if self.sense == "down" else climb_rate >= limit


EIGHTH, QUARTER, THIRD = Fraction(1, 8), Fraction(1, 4), Fraction(1, 3)
ADVISORIES = (
    Advisory("COC", -EIGHTH, EIGHTH),
    Advisory("DNC", -THIRD, -QUARTER, "down"),
    Advisory("DND", QUARTER, THIRD, "up"),
    Advisory("DES1500", -THIRD, -QUARTER, "down", 1500),
    Advisory("CL1500", QUARTER, THIRD, "up", 1500),
    Advisory("SDES1500", -THIRD, -THIRD, "down", 1500),
    Advisory("SCL1500", THIRD, THIRD, "up", 1500),
    Advisory("SDES2500", -THIRD, -THIRD, "down", 2500),
    Advisory("SCL2500", THIRD, THIRD, "up", 2500),
)
LABELS = tuple(advisory.name for advisory in ADVISORIES)
UNITS = {"ft/min": Fraction(1, 60), "ft/s": Fraction(1)}
"""What a climb rate in this unit is multiplied by, to be in ft/s."""
CLEAR = "h > 100 | h < -100"


def verticalcas(
    *,
    accelerations: int = 3,
    thresholds: str = "ft/min",
    same_advisory: bool = False,
    heights: tuple[float, ...] = (-133, -129),
    climb_rates: tuple[float, ...] = (-19.5, -22.5, -25.5, -28.5),
    seconds: int = 25,
    last_advisory: str = "COC",
) -> LoadedModel:
    """The model with the properties `phi-1` to `phi-6` and `no-near-collision`.

    `thresholds`: the unit of the climb rates that comply with an advisory.  The paper prints 1500 and
    2500 ft/s; the system that it is about means ft/min, that is 25 and 41.67 ft/s.
    `same_advisory`: a pilot complies with an advisory only from the second time on that it is given.
    The initial set: any height from `heights`, one of `climb_rates`, `seconds` and `last_advisory`.
    """
    if accelerations < 1:
        raise InvalidInput(f"a pilot needs at least one acceleration, found {accelerations}")
    if last_advisory not in LABELS:
        raise InvalidInput(f"there is no advisory {last_advisory!r} (there are: {', '.join(LABELS)})")
    if thresholds not in UNITS:
        raise InvalidInput(f"the unit of the thresholds is {' or '.join(UNITS)}, found {thresholds!r}")
    if len(heights) != 2 or not climb_rates:
        raise InvalidInput("the initial set needs two heights, the lowest and the highest, and some climb rate")
    builder = ModelBuilder("verticalcas")
    h, v = builder.real("h"), builder.real("v")
    tau = builder.integer("tau", 0, LONGEST, initial=seconds)
    adv = builder.integer("adv", 1, len(LABELS), initial=1 + LABELS.index(last_advisory))
    lowest, highest = (constant(Fraction(decimal(end))) for end in heights)
    rates = [constant(Fraction(decimal(rate))) for rate in climb_rates]
    start = h.equals(lowest) if lowest is highest else (h >= lowest) & (h <= highest)
    builder.initially(start & disjunction(v.equals(rate) for rate in rates))
    for number, advisory in enumerate(ADVISORIES, start=1):
        compliant = advisory.complies(v, UNITS[thresholds])
        if same_advisory:
            compliant = compliant & adv.equals(number)
        chosen = [(~compliant, a) for a in advisory.accelerations(accelerations)]
        if compliant is not FALSE:
            chosen.append((compliant, Fraction(0)))
        for guard, a in chosen:
            update: UpdateMap = {h: h - v - a / 2, v: v + a, tau: tau - 1, adv: constant(number)}
            builder.edge(advisory.name, guard=TRUE if compliant is FALSE else guard, update=update)
    safety = builder.safety("no-near-collision", unsafe=f"tau = 0 & !({CLEAR})", goal=f"tau = 0 & ({CLEAR})")
    model = builder.model()
    # JANI has no operator for "after k steps"; "at some time from step k to step k" is the same.
    texts = {f"phi-{steps}": f"AF[{steps},{steps}] ({CLEAR})" for steps in range(1, 7)}
    formulas = [dataclasses.replace(parse_property(text, model), name=name) for name, text in texts.items()]
    return from_model(model, [*formulas, safety])


def property_text(steps: int) -> str:
    """The paper's property phi^k: whatever the pilot does, after exactly k steps they are clear of each other."""
    return f"AX^{steps} ({CLEAR})"


def load_networks(folder: str | Path, model: LoadedModel | Model) -> Policy:
    """The switched policy of nine ONNX files whose names end in `_1` to `_9`, by last advisory.

    Their inputs are (h, v, tau) as others scale them: h / 16000, v / 5000, (tau - 20) / 40.
    """
    found: dict[int, list[Path]] = {}
    for path in sorted(Path(folder).glob("*.onnx")):
        match = re.search(r"(?:^|\D)([1-9])$", path.stem)
        if match:
            found.setdefault(int(match[1]), []).append(path)
    for number in range(1, len(LABELS) + 1):
        if len(found.get(number, [])) != 1:
            names = ", ".join(path.name for path in found.get(number, [])) or "none"
            message = f"expected one network whose name ends in {number} (after advisory {LABELS[number - 1]})"
            raise InvalidInput(f"{message}, found {names}", where=str(folder))
    files = [found[number][0] for number in range(1, len(LABELS) + 1)]
    return switched([read_network(path) for path in files], model, source=str(folder), files=tuple(map(str, files)))


def switched(
    networks: Sequence[Network], model: LoadedModel | Model, *, source: str = "verticalcas", files: tuple[str, ...] = ()
) -> Policy:
    """The policy of nine networks that see scaled inputs, one for each last advisory."""
    variables = (model.model if isinstance(model, LoadedModel) else model).variable_by_name
    scaling = Normalise(np.array(SUBTRACT), np.array(DIVIDE))
    return Policy(
        networks=tuple(dataclasses.replace(network, layers=(scaling, *network.layers)) for network in networks),
        inputs=tuple(variables[name].expression for name in INPUTS),
        labels=LABELS,
        switch=variables["adv"].expression,
        switch_values=tuple(range(1, len(LABELS) + 1)),
        source=source,
        files=files,
    )


INPUTS = ("h", "v", "tau")
SUBTRACT = (0.0, 0.0, 20.0)
DIVIDE = (16000.0, 5000.0, 40.0)
