"""A flattened model as a network of one automaton, so that other tools can read ⟨V, L, O⟩.

Locations become integer variables (`car` at its locations becomes `location_car`).  An edge keeps
its probabilities where all its destinations are applicable under the same condition; otherwise the
flattened model can only say that each may happen, and the caller must ask for that.
"""

from __future__ import annotations

from policyproof.model.automata import (
    Assignment,
    Automaton,
    Choice,
    Destination,
    Edge,
    Location,
    Model,
    Synchronisation,
    Update,
    Variable,
)
from policyproof.model.expressions import Expression, substitute
from policyproof.model.flat import FlatModel, Freedom, Operator
from policyproof.run.errors import Feature, UnsupportedFeature

MAXIMAL_OPERATORS = 200_000


def flat_network(flat: FlatModel, *, nondeterministic: bool = False) -> Model:
    """The flattened model as a network; `nondeterministic`: every operator an edge of its own, no probabilities."""
    if len(flat.operators) > MAXIMAL_OPERATORS:
        what = f"{len(flat.operators)} operators to write out (at most {MAXIMAL_OPERATORS})"
        raise UnsupportedFeature([Feature(f"model {flat.model.name!r}", what)])
    taken = set(flat.names)
    renamed: dict[str, str] = {}
    for name in flat.names:
        if name.startswith("@"):
            new = f"location_{name[1:]}"
            while new in taken:
                new += "_"
            taken.add(new)
            renamed[name] = new
    variables = tuple(_renamed(item, renamed) for item in flat.variables)
    by_name = {old.name: new.expression for old, new in zip(flat.variables, variables, strict=True)}
    groups: dict[tuple[object, ...], list[Operator]] = {}
    for number, operator in enumerate(flat.operators):
        edges = tuple((automaton, edge) for automaton, edge, _ in operator.origin)
        key: tuple[object, ...] = (operator.label, edges) if not nondeterministic else (number,)
        groups.setdefault(key, []).append(operator)
    flat_edges = [_edge(group, by_name, renamed, keep=not nondeterministic) for group in groups.values()]
    labels = [label for label in flat.labels if any(edge.action == label for edge in flat_edges)]
    (initial,) = substitute([flat.initial], by_name)
    automaton = Automaton("flat", (Location("ready"),), ("ready",), tuple(flat_edges))
    return Model(
        name=f"{flat.model.name} (flattened)",
        type="lts" if nondeterministic else flat.model.type,
        variables=variables,
        actions=flat.model.actions,
        automata=(automaton,),
        synchronisations=tuple(Synchronisation((label,), label) for label in labels),
        restrict_initial=initial,
        constants=flat.model.constants,
        arrays={name: elements for name, elements in flat.model.arrays.items() if set(elements) <= set(flat.names)},
    )


def _renamed(item: Variable, renamed: dict[str, str]) -> Variable:
    return Variable(renamed.get(item.name, item.name), item.domain, item.initial)


def _edge(group: list[Operator], by_name: dict[str, Expression], renamed: dict[str, str], *, keep: bool) -> Edge:
    first = group[0]
    if any(operator.guard is not first.guard for operator in group):
        what = (
            "destinations of one edge that are applicable under different conditions (an update may leave a domain); "
            "write every operator as a step of its own instead (--nondeterministic)"
        )
        raise UnsupportedFeature([Feature(f"label {first.label!r}", what)])
    (guard,) = substitute([first.guard], by_name)
    destinations = tuple(_destination(operator, by_name, renamed, keep=keep) for operator in group)
    return Edge("ready", destinations, first.label, guard)


def _destination(
    operator: Operator, by_name: dict[str, Expression], renamed: dict[str, str], *, keep: bool
) -> Destination:
    updates: list[Update] = []
    for name, value in operator.update.items():
        target = renamed.get(name, name)
        if isinstance(value, Freedom):
            lower, upper = substitute([value.lower, value.upper], by_name)
            updates.append(Choice(target, lower, upper))
        else:
            updates.append(Assignment(target, substitute([value], by_name)[0]))
    probability = None
    if keep and operator.probability is not None:
        (probability,) = substitute([operator.probability], by_name)
    return Destination("ready", tuple(updates), probability)
