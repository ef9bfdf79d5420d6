"""The command line.

Exit codes: 0 the property holds, 1 it is violated, 2 wrong usage or invalid input, 3 unknown, 4 an
internal or back-end failure, 130 after Ctrl-C (with the partial result written).  Heavy parts are
imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policyproof.run.budget import DEFAULT_MEMORY_MEGABYTES
from policyproof.run.errors import ExitCode, InvalidInput, PolicyProofError, ResourceExhausted
from policyproof.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policyproof.model.expressions import Expression
    from policyproof.model.source import LoadedModel
    from policyproof.policy.policy import Policy

app = typer.Typer(
    name="policyproof",
    help="Prove or refute what a neural policy can do in its environment, with evidence that anyone can check.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
policy_commands = typer.Typer(
    help="Work with policies: write a first interface file, look at one.", no_args_is_help=True
)
app.add_typer(policy_commands, name="policy")
zoo_commands = typer.Typer(help="The benchmarks that come with PolicyProof: models and policies.", no_args_is_help=True)
app.add_typer(zoo_commands, name="zoo")

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="The environment: a JANI file.", show_default=False)]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="policy.json, .jani2nnet, or a network with one beside it."),
]
PropertiesFile = Annotated[
    Path | None, typer.Option("--properties", metavar="FILE", help="A file of additional properties.")
]
PropertyText = Annotated[
    str | None, typer.Option("--property", metavar="NAME-OR-TEXT", help="A property by name, or as text: 'A[] x < 3'.")
]
Constants = Annotated[
    list[str] | None,
    typer.Option("--const", metavar="NAME=VALUE", help="A value for a constant of the model; repeatable."),
]
Filter = Annotated[
    bool | None,
    typer.Option(
        "--filter/--no-filter",
        help="Let the policy choose among applicable labels only (default: as its interface says).",
    ),
]
VecNormalize = Annotated[
    Path | None, typer.Option("--vecnormalize", metavar="FILE", help="Normalisation statistics of an SB3 policy.")
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the benchmark; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of everything random.")]
Timeout = Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up after this time.", min=0)]
Memory = Annotated[int, typer.Option("--memory", metavar="MB", help="The memory that states may take.", min=1)]
Jobs = Annotated[
    int | None, typer.Option("--jobs", metavar="N", help="How many threads may work (default: all processors).", min=1)
]
InitialState = Annotated[
    str,
    typer.Option(
        "--initial-state",
        metavar="include|exclude|property",
        help="Do the model's initial states belong to the start set, beside the property's start condition?",
    ),
]


OUT_OF_MEMORY = "out of memory (limit it with --memory to get a partial result instead)"


def main() -> None:
    """The entry point: runs a command and turns every outcome into an exit code."""
    # One layer alone does the parallel work: the numerical libraries below it run on one thread each.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        result = app(args=arguments, standalone_mode=False)
        # Now, since what goes wrong when the interpreter ends has no exit code of ours.
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else int(ExitCode.HOLDS)
    except (typer.Abort, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # The reader went away; nothing is left to say.  (Rich ends the program then, with the code of "violated".)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.FAILURE)
    except MemoryError:
        _say(f"error: {OUT_OF_MEMORY}")
        return int(ExitCode.UNKNOWN)
    except Exception as error:  # the last resort: a bug must never look like a verdict
        if debug:
            # An exception that leaves Python ends it with the code of "violated".
            traceback.print_exc()
        return _report(error)


def _report(error: Exception) -> int:
    """Say what went wrong; the exit code."""
    if isinstance(error, PolicyProofError):
        _say(f"error: {error}")
        return int(error.exit_code)
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        # A usage error; its class has moved between versions of the library.
        error.show()
        return int(ExitCode.INVALID_INPUT)
    if isinstance(error, OSError):
        _say(f"error: {error}")
    else:
        _say(f"internal error: {type(error).__name__}: {error}\n(this is a bug in PolicyProof; --debug shows where)")
    return int(ExitCode.FAILURE)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _print_json(value: Any) -> None:
    from policyproof.model.json_text import dumps

    sys.stdout.write(dumps(value, indent=2) + "\n")


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"policyproof {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (may stand anywhere).")] = False,
) -> None:
    pass


def _constants(given: list[str] | None) -> dict[str, str]:
    constants: dict[str, str] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidInput(f"expected NAME=VALUE, found {item!r}", where="--const")
        constants[name] = value
    return constants


def _load(model: Path, properties: Path | None, constants: list[str] | None) -> LoadedModel:
    from policyproof.model.source import load_model

    return load_model(model, constants=_constants(constants), properties=properties)


def _load_policy(
    file: Path | None, model: LoadedModel, filter_option: bool | None, vecnormalize: Path | None, prop: Any
) -> Policy | None:
    from policyproof.model.properties import SafetyProperty
    from policyproof.policy.load import load_policy

    if file is None and isinstance(prop, SafetyProperty):
        file = prop.policy_file
    if file is None:
        if filter_option is not None or vecnormalize is not None:
            raise InvalidInput("--filter and --vecnormalize need a policy")
        return None
    return load_policy(file, model, filter=filter_option, vecnormalize=vecnormalize)


def _predicates(model: LoadedModel, given: str | None) -> tuple[Expression, ...] | None:
    """The predicates of a file; `none` means no predicates at all, nothing means those of the property."""
    if given is None:
        return None
    return () if given == "none" else model.predicates(given)


def _include_initial(choice: str) -> bool | None:
    choices = {"include": True, "exclude": False, "property": None}
    if choice not in choices:
        raise InvalidInput(f"expected one of {', '.join(choices)}, found {choice!r}", where="--initial-state")
    return choices[choice]


@app.command()
def verify(
    model: ModelFile,
    policy: PolicyFile = None,
    properties: PropertiesFile = None,
    property_: PropertyText = None,
    const: Constants = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="auto|explicit|ppa|bmc", help="Which engine answers.")
    ] = "auto",
    timeout: Timeout = None,
    memory: Memory = DEFAULT_MEMORY_MEGABYTES,
    jobs: Jobs = None,
    seed: Seed = 0,
    json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write result.json and trace.json there.")
    ] = None,
    filter_: Filter = None,
    vecnormalize: VecNormalize = None,
    initial_state: InitialState = "property",
    all_starts: Annotated[
        bool, typer.Option("--all-starts", help="Go on after a violation: a verdict for every start state.")
    ] = False,
    stop_at_goal: Annotated[bool, typer.Option("--stop-at-goal", help="An episode ends in a goal state.")] = False,
    slicing: Annotated[
        bool, typer.Option("--slicing/--no-slicing", help="Forget variables that cannot matter.")
    ] = True,
    predicates: Annotated[
        str | None,
        typer.Option("--predicates", metavar="FILE|none", help="For ppa: other predicates than the property's own."),
    ] = None,
    solver: Annotated[
        str, typer.Option("--solver", metavar="milp|z3", help="For bmc: who looks for unsafe paths.")
    ] = "milp",
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="STEPS", help="For bmc: the longest paths (default: 100).", min=0),
    ] = None,
    configuration: Annotated[
        str,
        typer.Option(
            "--configuration", metavar="native|Base|...", help="For ppa: which tests it makes, by which solvers."
        ),
    ] = "native",
) -> int:
    """Prove or refute a property of a policy in its environment."""
    from policyproof import api
    from policyproof.report.terminal import live_progress, show_answer, show_unfinished
    from policyproof.run.budget import Budget
    from policyproof.run.interrupt import stopping
    from policyproof.run.threads import set_jobs

    set_jobs(jobs)
    budget = Budget(timeout, memory)
    if out is not None:
        _make_folder(out)
    answer: api.Answer | api.Unfinished
    progress = None
    try:
        with stopping(budget) as begun, live_progress() as progress:
            loaded = _load(model, properties, const)
            prop = loaded.property(property_)
            chosen_policy = _load_policy(policy, loaded, filter_, vecnormalize, prop)
            answer = api.verify(
                loaded,
                chosen_policy,
                prop,
                engine=engine,
                include_initial=_include_initial(initial_state),
                all_starts=all_starts,
                stop_at_goal=stop_at_goal,
                slicing=slicing,
                predicates=_predicates(loaded, predicates),
                configuration=configuration,
                solver=solver,
                length=length,
                seed=seed,
                budget=budget,
                on_progress=lambda item: (begun(), progress(item)),
            )
    except (ResourceExhausted, MemoryError) as error:
        answer = api.Unfinished(
            str(error) or OUT_OF_MEMORY,
            model.name,
            property_,
            None if policy is None else policy.name,
            None if progress is None else progress.latest,
            budget.elapsed,
            {"seed": seed, "engine": engine},
        )
    evidence, trace_file = _write_answer(answer, out)
    if json:
        _print_json(answer.to_json(evidence=evidence))
    elif isinstance(answer, api.Unfinished):
        show_unfinished(answer)
    else:
        command = _replay_command(
            [model, trace_file],
            {
                "--policy": policy,
                "--properties": properties,
                "--property": property_,
                "--const": const,
                "--vecnormalize": vecnormalize,
                "--initial-state": None if initial_state == "property" else initial_state,
            },
            filter_,
        )
        show_answer(answer, trace_file=trace_file, replay_command=command)
    if budget.cancelled.is_set():
        return int(ExitCode.INTERRUPTED)
    codes = {"holds": ExitCode.HOLDS, "bounded": ExitCode.HOLDS, "violated": ExitCode.VIOLATED}
    return int(codes.get(answer.verdict, ExitCode.UNKNOWN))


def _replay_command(files: list[Path | str | None], options: dict[str, Any], filter_: bool | None) -> str:
    """How to check the trace: the options that say what it belongs to, as they were given."""
    words = ["policyproof", "replay", *map(str, files)]
    for name, value in options.items():
        for item in value if isinstance(value, list) else [value]:
            words.extend([] if item is None else [name, str(item)])
    if filter_ is not None:
        words.append("--filter" if filter_ else "--no-filter")
    return shlex.join(words)


def _make_folder(out: Path) -> None:
    """Now, and not after hours of work."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"no folder can be made here: {error.strerror}", where=str(out)) from None


def _write_answer(answer: Any, out: Path | None) -> tuple[dict[str, str], str | None]:
    from policyproof.model.json_text import dumps
    from policyproof.run.files import write_atomically

    if out is None:
        return {}, None
    evidence: dict[str, str] = {}
    if answer.trace is not None:
        answer.trace.write(out / "trace.json")
        evidence["trace"] = "trace.json"
    write_atomically(out / "result.json", dumps(answer.to_json(evidence=evidence), indent=2) + "\n")
    return evidence, str(out / "trace.json") if "trace" in evidence else None


@app.command()
def replay(
    model: ModelFile,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace.json.", show_default=False)],
    policy: PolicyFile = None,
    properties: PropertiesFile = None,
    property_: PropertyText = None,
    const: Constants = None,
    filter_: Filter = None,
    vecnormalize: VecNormalize = None,
    initial_state: InitialState = "property",
    steps_only: Annotated[
        bool, typer.Option("--steps-only", help="Check only that every step happens, for no property.")
    ] = False,
    json: Json = False,
) -> int:
    """Check with an independent interpreter, in exact arithmetic, that a trace really happens."""
    from rich.text import Text

    from policyproof.evidence.replay import replay as check
    from policyproof.evidence.trace import read_trace
    from policyproof.report.terminal import console

    loaded = _load(model, properties, const)
    prop = None if steps_only else loaded.property(property_)
    chosen_policy = _load_policy(policy, loaded, filter_, vecnormalize, prop)
    given = read_trace(trace)
    _check_context(given.context, prop, chosen_policy, where=str(trace))
    outcome = check(loaded.model, given, prop, chosen_policy, include_initial=_include_initial(initial_state))
    if json:
        _print_json(
            {
                "schema": "policyproof-replay-1",
                "accepted": outcome.accepted,
                "reason": outcome.reason,
                "steps": outcome.steps,
                "ties": list(outcome.ties),
                "deployed_disagreements": list(outcome.disagreements),
            }
        )
    else:
        shown = console()
        verdict, style = ("ACCEPTED", "bold green") if outcome.accepted else ("REJECTED", "bold red")
        shown.print(Text.assemble((verdict, style), f"  {outcome.reason}"))
        if outcome.ties:
            shown.print(f"  exact ties (the first output wins) in states {', '.join(map(str, outcome.ties))}")
        for line in outcome.disagreements:
            shown.print(f"  differs when deployed: {line}", markup=False)
    return 0 if outcome.accepted else 1


def _check_context(context: Mapping[str, Any], prop: Any, policy: Policy | None, *, where: str) -> None:
    """A trace that was made for a policy or for another property must not pass as evidence without them."""
    from policyproof.api import describe_property

    made_for = context.get("policy")
    if isinstance(made_for, dict) and policy is None and prop is not None:
        raise InvalidInput(f"made for the policy {made_for.get('source')!r}; give it with --policy", where=where)
    asked = context.get("property")
    if prop is not None and isinstance(asked, str) and asked != describe_property(prop):
        raise InvalidInput(
            f"made for the property {asked!r}, not for {describe_property(prop)!r}; name it with --property, "
            "or check the steps alone with --steps-only",
            where=where,
        )


@app.command()
def simulate(
    model: ModelFile,
    policy: PolicyFile = None,
    properties: PropertiesFile = None,
    property_: PropertyText = None,
    const: Constants = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, max=10_000_000, help="How many.")] = 1000,
    steps: Annotated[int, typer.Option("--steps", min=1, help="The longest rollout.")] = 1000,
    seed: Seed = 0,
    timeout: Timeout = None,
    json: Json = False,
    filter_: Filter = None,
    vecnormalize: VecNormalize = None,
    initial_state: InitialState = "property",
) -> int:
    """Roll the policy out at random: success, failure and stuck rates, and an example.  Proves nothing."""
    from policyproof.model.flat import flatten
    from policyproof.report.rollouts import run_rollouts, show_rollouts
    from policyproof.run.budget import Budget
    from policyproof.run.interrupt import stopping

    budget = Budget(timeout)
    with stopping(budget) as begun:
        loaded = _load(model, properties, const)
        prop = loaded.property(property_)
        chosen_policy = _load_policy(policy, loaded, filter_, vecnormalize, prop)
        simulation = run_rollouts(
            flatten(loaded.model),
            prop,
            chosen_policy,
            include_initial=_include_initial(initial_state),
            rollouts=rollouts,
            steps=steps,
            seed=seed,
            budget=budget,
            on_progress=lambda _: begun(),
        )
    if json:
        example = {"states": list(simulation.example), "labels": list(simulation.example_labels)}
        outcome = {"outcome": simulation.example_outcome, **example}
        _print_json(
            {
                "schema": "policyproof-simulation-1",
                "seed": seed,
                "stopped": simulation.stopped,
                "statistics": simulation.statistics(),
                "example": outcome,
            }
        )
    else:
        show_rollouts(simulation)
    if budget.cancelled.is_set():
        return int(ExitCode.INTERRUPTED)
    return int(ExitCode.HOLDS if simulation.stopped is None else ExitCode.UNKNOWN)


@app.command()
def supports(
    model: ModelFile,
    properties: PropertiesFile = None,
    const: Constants = None,
    json: Json = False,
) -> int:
    """List what a model contains, and everything in it that is not supported."""
    from policyproof.report.capabilities import capabilities, show_capabilities

    report = capabilities(model, properties, _constants(const))
    if json:
        _print_json(report)
    else:
        show_capabilities(report)
    return int(ExitCode.HOLDS if report["supported"] else ExitCode.INVALID_INPUT)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A JANI model, or a network.", show_default=False)],
    target: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write: .jani, .onnx or .npz.", show_default=False)
    ],
    const: Constants = None,
    flatten: Annotated[
        bool, typer.Option("--flatten", help="Write one automaton instead of a network of them.")
    ] = False,
    nondeterministic: Annotated[
        bool, typer.Option("--nondeterministic", help="With --flatten: one edge per operator, without probabilities.")
    ] = False,
    activation: Annotated[
        str | None, typer.Option("--activation", help="The activation, for files that do not name it.")
    ] = None,
    vecnormalize: VecNormalize = None,
) -> int:
    """Convert a model (JANI to JANI, constants fixed) or a network (any supported format to ONNX or npz)."""
    from policyproof.report.conversion import convert_model, convert_network

    if source.suffix == ".jani":
        convert_model(source, target, _constants(const), flattened=flatten, nondeterministic=nondeterministic)
    else:
        convert_network(source, target, activation=activation, vecnormalize=vecnormalize)
    sys.stdout.write(f"wrote {target}\n")
    return 0


@app.command()
def vnn(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="A network file.", show_default=False)],
    query: Annotated[Path, typer.Argument(metavar="PROPERTY", help="A VNN-LIB 1.0 file.", show_default=False)],
    timeout: Timeout = None,
    memory: Memory = DEFAULT_MEMORY_MEGABYTES,
    seed: Seed = 0,
    json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the result and the counterexample there, too.")
    ] = None,
    activation: Annotated[str | None, typer.Option("--activation", help="For files that do not name it.")] = None,
) -> int:
    """Is there an input as the property asks for?  Answers sat (with a confirmed input), unsat, unknown or timeout."""
    from policyproof.report.queries import answer_query, notes, result_json, result_text
    from policyproof.run.budget import Budget
    from policyproof.run.files import write_atomically

    budget = Budget(timeout, memory)
    answer = answer_query(network, query, budget, activation=activation, seed=seed)
    if out is not None:
        write_atomically(out, result_text(answer))
    if json:
        _print_json(result_json(answer, budget.elapsed, seed))
    else:
        sys.stdout.write(result_text(answer))
        for note in notes(answer):
            _say(f"note: {note}")
    if budget.cancelled.is_set():
        return int(ExitCode.INTERRUPTED)
    return int(ExitCode.HOLDS if answer.result in ("sat", "unsat") else ExitCode.UNKNOWN)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep the files of the demo there.")] = None,
) -> int:
    """Prove a bundled policy safe, refute another one, and replay the counterexample."""
    from policyproof.report.demonstration import run_demo

    return run_demo(out)


@app.command()
def train(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A JANI file, or a benchmark as `zoo list` names it.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="NAME", help="Writes NAME.onnx, NAME.json, NAME.card.json and NAME.svg.")
    ],
    properties: PropertiesFile = None,
    property_: PropertyText = None,
    const: Constants = None,
    param: Parameters = None,
    hidden: Annotated[str, typer.Option("--hidden", metavar="N,N", help="The sizes of the hidden layers.")] = "64,64",
    updates: Annotated[int, typer.Option("--updates", min=1, help="How many batches are learnt from.")] = 40_000,
    seed: Seed = 0,
    timeout: Timeout = None,
    reads: Annotated[
        list[str] | None,
        typer.Option("--reads", metavar="PATTERN", help="Variables that the policy reads (default: all); repeatable."),
    ] = None,
    ignores: Annotated[
        list[str] | None,
        typer.Option("--ignores", metavar="PATTERN", help="Variables that it does not read, 'cost_*'; repeatable."),
    ] = None,
    filter_: Annotated[
        bool, typer.Option("--filter", help="The policy will choose among applicable labels only.")
    ] = False,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            "--reward",
            metavar="NAME=NUMBER",
            help="goal (1), unsafe (-1), stuck (-1), step (0), or model (1: the weight of the model's own rewards).",
        ),
    ] = None,
    shaping: Annotated[
        str | None,
        typer.Option("--shaping", metavar="EXPRESSION", help="A number that grows towards the goal: '0 - abs(x - 9)'."),
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option("--progress", metavar="EXPRESSION", help="As --shaping, but its growth is a goal of its own."),
    ] = None,
    discount: Annotated[
        float, typer.Option("--discount", min=0, max=1, help="What the next step is worth beside this one.")
    ] = 0.98,
    n_steps: Annotated[int, typer.Option("--n-steps", min=1, max=100, help="Rewards counted before estimates.")] = 3,
    dueling: Annotated[
        bool, typer.Option("--dueling", help="Learn a value and advantages; the policy has the same size.")
    ] = False,
    steps: Annotated[int, typer.Option("--steps", min=1, help="The longest episode.")] = 100,
    rollouts: Annotated[int, typer.Option("--rollouts", min=1, help="How many the card's rates are of.")] = 10_000,
    json: Json = False,
) -> int:
    """Train a policy by deep Q-learning, and write it with a card that says how, and what it is worth."""
    from policyproof.report.training import Wish, command_of, read_rewards, read_sizes, run_training, show_card
    from policyproof.run.budget import Budget
    from policyproof.run.interrupt import stopping
    from policyproof.training.deep_q import Settings

    settings = Settings(
        hidden=read_sizes(hidden), updates=updates, seed=seed, filter=filter_, dueling=dueling, discount=discount,
        n_steps=n_steps, maximal_steps=steps, rewards=read_rewards(reward or []),
    )  # fmt: skip
    given = {
        "--properties": properties, "--property": property_, "--const": const, "--param": param, "--hidden": hidden,
        "--updates": updates, "--seed": seed, "--reads": reads, "--ignores": ignores, "--filter": filter_,
        "--reward": reward, "--shaping": shaping, "--progress": progress, "--discount": discount,
        "--n-steps": n_steps, "--dueling": dueling, "--steps": steps, "--rollouts": rollouts,
    }  # fmt: skip
    wish = Wish(
        model, out, settings,
        reads=reads or [], ignores=ignores or [], shaping=shaping, progress=progress,
        property_name=property_, properties=properties,
        constants=_constants(const), parameters=param or [], rollouts=rollouts,
        command=command_of(model, out, given),
    )  # fmt: skip
    budget = Budget(timeout)
    # The time limit is one of learning; what was learnt is measured and written then.
    with stopping(Budget(cancelled=budget.cancelled)) as begun:
        card = run_training(wish, budget, on_progress=lambda _: begun())
    if json:
        _print_json(card)
    else:
        show_card(card, out)
    if budget.cancelled.is_set():
        return int(ExitCode.INTERRUPTED)
    return int(ExitCode.HOLDS if card["stopped"] is None else ExitCode.UNKNOWN)


@policy_commands.command("init")
def policy_init(
    model: ModelFile,
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="A network file.", show_default=False)],
    const: Constants = None,
    activation: Annotated[str | None, typer.Option("--activation", help="For files that do not name it.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: NETWORK with the suffix .json.")
    ] = None,
) -> int:
    """Write a first policy.json that connects a network to a model, from sizes and names."""
    from policyproof.report.conversion import write_interface

    target = write_interface(_load(model, None, const), network, out, activation=activation)
    sys.stdout.write(f"wrote {target}; check the order of its inputs and labels\n")
    return 0


@policy_commands.command("inspect")
def policy_inspect(
    model: ModelFile,
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY", help="An interface file or a network.", show_default=False)
    ],
    const: Constants = None,
    vecnormalize: VecNormalize = None,
    json: Json = False,
) -> int:
    """Show how a policy is connected to a model, and compare its network with the original runtime."""
    from policyproof.report.inspection import inspect_policy, show_policy

    report = inspect_policy(_load(model, None, const), policy, vecnormalize)
    if json:
        _print_json(report)
    else:
        show_policy(report)
    return 0


Benchmark = Annotated[str, typer.Argument(metavar="NAME", help="A benchmark, as `zoo list` names it.")]


@zoo_commands.command("list")
def zoo_list() -> int:
    """List the benchmarks."""
    from policyproof.report.zoo_pages import list_benchmarks

    list_benchmarks()
    return 0


@zoo_commands.command("show")
def zoo_show(name: Benchmark, param: Parameters = None) -> int:
    """Show what a benchmark models, its parameters, its variables and labels, and its properties."""
    from policyproof.report.zoo_pages import show_benchmark

    show_benchmark(name, param or [])
    return 0


@zoo_commands.command("write")
def zoo_write(
    name: Benchmark,
    param: Parameters = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write.")] = Path(),
) -> int:
    """Write a benchmark as NAME.jani, and the policies that were trained for it."""
    from policyproof.report.zoo_pages import write_benchmark

    for file in write_benchmark(name, param or [], out):
        sys.stdout.write(f"wrote {file}\n")
    return 0


if __name__ == "__main__":
    main()
