"""The Python interface: load a model and a policy, ask, and get the answer with its evidence.

import policyproof as pp
model = pp.load_model("warehouse.jani", constants={"size": 5})
policy = pp.load_policy("policy.json", model)
answer = pp.verify(model, policy, "A[] !collision")
answer.verdict, answer.reason, answer.trace
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyproof.engines.result import Progress, Result, Run, drive
from policyproof.evidence.trace import Trace, write_number
from policyproof.model.automata import Model
from policyproof.model.expressions import Expression
from policyproof.model.json_text import Json
from policyproof.model.properties import Property, SafetyProperty
from policyproof.model.source import LoadedModel, from_model
from policyproof.model.text import format_formula
from policyproof.policy.load import fingerprint, load_policy
from policyproof.policy.policy import Policy
from policyproof.run.budget import DEFAULT_MEMORY_MEGABYTES, Budget
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature
from policyproof.version import __version__

ENGINES = ("auto", "explicit", "ppa", "bmc")
RESULT_SCHEMA = "policyproof-result-1"


@dataclass(frozen=True)
class Answer:
    """The result of an engine, with what it belongs to."""

    result: Result
    model: LoadedModel
    question: Property
    policy: Policy | None
    seconds: float
    options: Mapping[str, Json] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def reason(self) -> str:
        return self.result.reason

    @property
    def trace(self) -> Trace | None:
        trace = self.result.trace
        if trace is None:
            return None
        return Trace(trace.states, trace.steps, trace.kind, self.context())

    def context(self) -> dict[str, Json]:
        """What evidence must say of the model, the policy and the property that it belongs to."""
        model = self.model
        context: dict[str, Json] = {
            "model": {"name": model.model.name, "sha256": model.fingerprint()},
            "property": describe_property(self.question),
            "constants": {name: write_number(value) for name, value in model.model.constants.items()},
        }
        if self.policy is not None:
            context["policy"] = {"source": Path(self.policy.source).name, "sha256": fingerprint(self.policy)}
        return context

    def to_json(self, *, evidence: Mapping[str, str] | None = None) -> dict[str, Json]:
        """The one object that `--json` prints; `evidence` names files, without it a trace stands in the object."""
        trace = self.trace
        shown: dict[str, Json] = dict(evidence or {})
        if trace is not None and "trace" not in shown:
            shown["trace"] = trace.to_json()
        return _result_json(
            self.result,
            {
                "model": self.model.model.name,
                "property": describe_property(self.question),
                "policy": None if self.policy is None else Path(self.policy.source).name,
            },
            shown,
            self.options,
            self.seconds,
        )


@dataclass(frozen=True)
class Unfinished:
    """What is left of a question whose work was ended where it stood, before an engine could report."""

    reason: str
    model: str | None
    question: str | None
    policy: str | None
    progress: Progress | None
    seconds: float
    options: Mapping[str, Json] = field(default_factory=dict)
    verdict: str = "unknown"
    trace: None = None

    def to_json(self, *, evidence: Mapping[str, str] | None = None) -> dict[str, Json]:
        """As that of an `Answer`; the numbers are those of the last progress."""
        result = Result("unknown", self.reason, "none", {} if self.progress is None else self.progress.numbers)
        about = {"model": self.model, "property": self.question, "policy": self.policy}
        return _result_json(result, about, evidence or {}, self.options, self.seconds)


def _result_json(
    result: Result,
    about: Mapping[str, str | None],
    evidence: Mapping[str, Json],
    options: Mapping[str, Json],
    seconds: float,
) -> dict[str, Json]:
    """What `report/result.schema.json` describes."""
    return {
        "schema": RESULT_SCHEMA,
        "verdict": result.verdict,
        "reason": result.reason,
        "value": None if result.value is None else [None if v is None else float(v) for v in result.value],
        "engine": result.engine,
        "arithmetic": result.arithmetic,
        **about,
        "evidence": dict(evidence),
        "statistics": {name: _plain(value) for name, value in result.statistics.items()},
        "log": [dict(entry) for entry in result.log],
        "options": dict(options),
        "versions": {"policyproof": __version__, "python": platform.python_version()},
        "seed": options.get("seed", 0),
        "seconds": round(seconds, 6),
    }


def _plain(value: int | float) -> int | float:
    return int(value) if isinstance(value, int) or float(value).is_integer() else float(value)


def describe_property(question: Property) -> str:
    if isinstance(question, SafetyProperty):
        return question.name
    text = format_formula(question.formula)
    return question.name if question.name == text else f"{question.name}: {text}"


def verify(
    model: LoadedModel | Model,
    policy: Policy | None = None,
    question: Property | str | None = None,
    *,
    engine: str = "auto",
    timeout: float | None = None,
    memory: int = DEFAULT_MEMORY_MEGABYTES,
    include_initial: bool | None = None,
    all_starts: bool = False,
    stop_at_goal: bool = False,
    slicing: bool = True,
    predicates: Sequence[Expression] | None = None,
    configuration: str = "native",
    solver: str = "milp",
    length: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Answer:
    """Prove or refute a property of a policy in its environment.

    Without a policy the property is asked of the environment with all its labels.  `include_initial`
    says whether the model's initial states belong to the start set beside the property's own start
    condition (default: as the property says); `all_starts` asks for a verdict on every start state;
    `stop_at_goal` ends an episode in a goal state; `predicates` are those of the engine `ppa` (default:
    those that the property names), and `configuration` says which tests it makes, and by which solvers.
    `solver` ("milp" or "z3") and `length` are for the engine `bmc`: who looks for unsafe paths, of up to how many
    steps (default: 100, or as the property says).
    """
    loaded = model if isinstance(model, LoadedModel) else from_model(model)
    if engine not in ENGINES:
        raise InvalidInput(f"there is no engine {engine!r} (there are: {', '.join(ENGINES)})")
    prop = loaded.property(question) if isinstance(question, str) or question is None else question
    if policy is None and isinstance(prop, SafetyProperty) and prop.policy_file is not None:
        policy = load_policy(prop.policy_file, loaded.model)
    _check_options(
        engine, predicates is not None, all_starts=all_starts, stop_at_goal=stop_at_goal, slicing=slicing, length=length
    )
    started = time.monotonic()
    budget = budget or Budget(timeout, memory)
    if engine == "ppa":
        run = _ppa(
            loaded.model,
            prop,
            policy,
            budget,
            predicates,
            include_initial=include_initial,
            configuration=configuration,
            seed=seed,
        )
    elif engine == "bmc":
        run = _bmc(
            loaded.model, prop, policy, budget, include_initial=include_initial, solver=solver, length=length, seed=seed
        )
    else:
        run = _explicit(
            loaded.model,
            prop,
            policy,
            budget,
            include_initial=include_initial,
            all_starts=all_starts,
            stop_at_goal=stop_at_goal,
            slicing=slicing,
        )
    result = drive(run, on_progress)
    options: dict[str, Json] = {"seed": seed, "engine": engine}
    if engine == "ppa":
        options["configuration"] = configuration
    if engine == "bmc":
        options.update(solver=solver, length=length)
    if isinstance(prop, SafetyProperty):
        given = prop.include_initial if include_initial is None else include_initial
        options["initial_state"] = "include" if given or prop.start is None else "exclude"
        options["stop_at_goal"] = stop_at_goal
    if policy is not None:
        options["filter"] = policy.filter
    return Answer(result, loaded, prop, policy, time.monotonic() - started, options)


def _check_options(
    engine: str, predicates: bool, *, all_starts: bool, stop_at_goal: bool, slicing: bool, length: int | None
) -> None:
    """An option that the engine would not look at is refused: whoever gives it expects another answer."""
    explicit = {"all_starts": all_starts, "stop_at_goal": stop_at_goal, "slicing=False": not slicing}
    for name, given in explicit.items():
        if given and engine not in ("auto", "explicit"):
            raise InvalidInput(f"{name} is an option of the engine explicit, not of {engine}")
    if predicates and engine != "ppa":
        raise InvalidInput(f"predicates are for the engine ppa, not for {engine}")
    if length is not None and engine != "bmc":
        raise InvalidInput(f"a length is for the engine bmc, not for {engine}")


def _ppa(
    model: Model,
    prop: Property,
    policy: Policy | None,
    budget: Budget,
    predicates: Sequence[Expression] | None,
    *,
    include_initial: bool | None,
    configuration: str,
    seed: int,
) -> Run:
    """Predicate abstraction, with the property's own predicates unless others are given."""
    from policyproof.engines.ppa.search import abstract
    from policyproof.engines.question import safety_question

    if predicates is None:
        predicates = prop.predicates if isinstance(prop, SafetyProperty) else None
    if predicates is None:
        raise InvalidInput("the engine ppa needs predicates, and the property names none: give a file (--predicates)")
    question = safety_question(model, prop, policy, include_initial=include_initial)
    return (yield from abstract(question, predicates, budget, configuration=configuration, seed=seed))


def _bmc(
    model: Model,
    prop: Property,
    policy: Policy | None,
    budget: Budget,
    *,
    include_initial: bool | None,
    **options: Any,
) -> Run:
    """Bounded model checking."""
    from policyproof.engines.bmc.search import check_paths
    from policyproof.engines.question import safety_question

    question = safety_question(model, prop, policy, include_initial=include_initial)
    return (yield from check_paths(question, budget, **options))


def _explicit(model: Model, prop: Property, policy: Policy | None, budget: Budget, **options: Any) -> Run:
    """The explicit engine, in the variant that the property and the model need."""
    from policyproof.engines.explicit.exact_search import explore_exactly
    from policyproof.engines.explicit.formulas import explore_formula
    from policyproof.engines.explicit.search import NotDiscrete, explore
    from policyproof.engines.question import asks_for_safety, safety_question
    from policyproof.model.flat import flatten
    from policyproof.model.properties import FormulaProperty

    if isinstance(prop, FormulaProperty) and not asks_for_safety(prop):
        try:
            return (yield from explore_formula(flatten(model), prop, policy, budget, slicing=options["slicing"]))
        except NotDiscrete as reason:
            what = f"temporal formulas other than A[] f and AG<=k f by the explicit engine, because of {reason}"
            raise UnsupportedFeature([Feature(f"property {prop.name!r}", what)]) from None
    question = safety_question(model, prop, policy, include_initial=options.pop("include_initial"))
    try:
        return (yield from explore(question, budget, **options))
    except NotDiscrete:
        options.pop("slicing")
        return (yield from explore_exactly(question, budget, **options))
