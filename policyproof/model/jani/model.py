"""Reading a JANI model: declarations, automata, composition.  Properties are read on demand.

The result is `JaniModel`: the network with all constants fixed, the scope in which properties
and predicates are read, and the raw properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from policyproof.model.automata import (
    ArrayAssignment,
    Assignment,
    Automaton,
    Choice,
    Destination,
    Domain,
    Edge,
    Exact,
    Location,
    Model,
    ModelType,
    Synchronisation,
    Update,
    Variable,
)
from policyproof.model.expressions import (
    TRUE,
    Expression,
    Kind,
    constant,
    disjunction,
    negation,
    to_real,
)
from policyproof.model.jani.expressions import (
    ExpressionReader,
    Function,
    Missing,
    Scope,
    assignable,
    parameter,
)
from policyproof.model.jani.reader import Reader
from policyproof.model.json_text import Document, Json, read_file
from policyproof.run.errors import InvalidInput

MODEL_TYPES: dict[str, ModelType] = {"lts": "lts", "dtmc": "dtmc", "mdp": "mdp"}
UNSUPPORTED_TYPES = ("ctmc", "ctmdp", "ma", "ta", "pta", "sta", "ha", "pha", "sha", "lpta")
SUPPORTED_FEATURES = frozenset(
    [
        "arrays",
        "derived-operators",
        "functions",
        "state-exit-rewards",
        "trigonometric-functions",
        "hyperbolic-functions",
    ]
)
PROBABILITY_TOLERANCE = Fraction(1, 10**6)

_MODEL_KEYS = frozenset(
    ["jani-version", "name", "type", "features", "actions", "constants", "variables", "restrict-initial"]
    + ["properties", "automata", "system", "functions"]
)
_AUTOMATON_KEYS = frozenset(
    ["name", "variables", "restrict-initial", "locations", "initial-locations", "edges", "functions"]
)


@dataclass(frozen=True)
class JaniModel:
    """A model, and what is needed to read properties that speak about it."""

    model: Model
    document: Document
    scope: Scope
    functions: Mapping[str, Function]
    raw_properties: list[Json]


def read_model(path: str | Path, constants: Mapping[str, Exact | float | str] | None = None) -> JaniModel:
    """Read a JANI file; `constants` gives values to its open constants."""
    return ModelReader(read_file(path), constants or {}).read()


class ModelReader:
    """Reads one model file from its parsed JSON."""

    def __init__(self, document: Document, constants: Mapping[str, Exact | float | str]) -> None:
        self.document = document
        self.reader = Reader(document)
        self.given = dict(constants)
        self.functions: dict[str, Function] = {}
        self.expressions = ExpressionReader(self.reader, self.functions)
        self.scope: dict[str, Expression | tuple[Expression, ...] | Missing] = {}
        self.variables: list[Variable] = []
        self.arrays: dict[str, tuple[str, ...]] = {}
        self.aliases: dict[tuple[str, str], str] = {}
        self.constants: dict[str, Exact] = {}
        self.actions: tuple[str, ...] = ()

    def read(self) -> JaniModel:
        reader = self.reader
        root = self.document.root
        if not isinstance(root, dict):
            raise InvalidInput("expected a JSON object (a JANI model)", where=self.document.name)
        if "automata" not in root:
            hint = " (this looks like a file of additional properties: pass it with --properties)"
            known = any(key in root for key in ("properties", "op", "exp"))
            raise InvalidInput(
                f"not a JANI model: the entry 'automata' is missing{hint if known else ''}",
                where=f"{self.document.name}: $",
            )
        reader.object(root, root, None, keys=_MODEL_KEYS)
        model_type = self._model_type(root)
        for position, feature in enumerate(reader.get(root, "features", list, default=[])):
            if feature not in SUPPORTED_FEATURES:
                reader.unsupported(root["features"], position, f"the JANI feature {feature!r}")
        self._read_actions(root)
        self._read_constants(root)
        self._declare_functions(reader.get(root, "functions", list, default=[]), self.scope)
        self._read_variables(reader.get(root, "variables", list, default=[]), self.scope, None)
        # Functions may use global variables, which stand after them in the order of reading.
        self._read_functions(reader.get(root, "functions", list, default=[]), self.scope)
        automata = self._read_automata(root)
        synchronisations, elements = self._read_system(root, automata)
        restriction = self._restriction(root, self.scope)
        reader.finish()
        model = Model(
            name=reader.get(root, "name", str),
            type=model_type,
            variables=tuple(self.variables),
            actions=self.actions,
            automata=elements,
            synchronisations=synchronisations,
            restrict_initial=restriction,
            constants=self.constants,
            arrays=self.arrays,
            aliases=self.aliases,
        )
        raw = reader.get(root, "properties", list, default=[])
        return JaniModel(model, self.document, self.scope, self.functions, raw)

    # Declarations

    def _model_type(self, root: dict[str, Json]) -> ModelType:
        name = self.reader.get(root, "type", str)
        if name in UNSUPPORTED_TYPES:
            self.reader.unsupported(root, "type", f"models of type {name!r} (supported: lts, dtmc, mdp)")
            return "mdp"
        self.reader.one_of(root, "type", name, list(MODEL_TYPES), "model type")
        return MODEL_TYPES[name]

    def _read_actions(self, root: dict[str, Json]) -> None:
        names: list[str] = []
        for position, action in enumerate(self.reader.get(root, "actions", list, default=[])):
            self.reader.object(action, root["actions"], position, keys=frozenset(["name"]))
            name = self.reader.get(action, "name", str)
            if name in names:
                raise self.reader.invalid(action, "name", f"the action {name!r} is declared twice")
            names.append(name)
        self.actions = tuple(names)

    def _declare(self, scope: dict[str, Expression | tuple[Expression, ...] | Missing], owner: Json, name: str) -> None:
        if name in scope:
            raise self.reader.invalid(owner, "name", f"{name!r} is declared twice")

    def _read_constants(self, root: dict[str, Json]) -> None:
        reader = self.reader
        declared = reader.get(root, "constants", list, default=[])
        known = [item.get("name") for item in declared if isinstance(item, dict)]
        for name in self.given:
            if name not in known:
                shown = ", ".join(str(item) for item in known) or "none"
                raise InvalidInput(
                    f"there is no constant {name!r} to give a value to (there are: {shown})", where=self.document.name
                )
        for position, item in enumerate(declared):
            reader.object(item, declared, position, keys=frozenset(["name", "type", "value"]))
            name = reader.get(item, "name", str)
            self._declare(self.scope, item, name)
            domain = self._domain(item, self.scope)
            value: Exact | None = None
            if name in self.given:
                value = parse_constant(name, self.given[name], domain)
            elif "value" in item:
                expression = self.expressions.number_or_bool(item, "value", self.scope)
                if expression is not None and domain is not None:
                    value = self._initial(item, "value", expression, domain)
            if value is None or domain is None:
                self.scope[name] = Missing(name)
            else:
                self.constants[name] = value
                self.scope[name] = constant(Fraction(value) if domain.kind == "real" else value)

    def _domain(self, item: dict[str, Json], scope: Scope, key: str = "type") -> Domain | None:
        """The domain of a declaration that is no array; None if it is unsupported or has missing constants."""
        if key not in item:
            raise self.reader.invalid(item, None, f"the entry {key!r} is missing")
        declared = item[key]
        if isinstance(declared, str):
            if declared in ("clock", "continuous"):
                self.reader.unsupported(item, key, f"variables of type {declared!r}")
                return None
            self.reader.one_of(item, key, declared, ["bool", "int", "real"], "type")
            return {"bool": Domain("bool"), "int": Domain("int"), "real": Domain("real")}[declared]
        self.reader.object(declared, item, key, keys=frozenset(["kind", "base", "lower-bound", "upper-bound", "ref"]))
        kind = self.reader.get(declared, "kind", str)
        if kind != "bounded":
            self.reader.unsupported(item, key, f"types of kind {kind!r} here")
            return None
        base = self.reader.get(declared, "base", str)
        self.reader.one_of(declared, "base", base, ["int", "real"], "base type")
        bounds: list[int | Fraction | None] = []
        complete = True
        for bound in ("lower-bound", "upper-bound"):
            if bound not in declared:
                bounds.append(None)
                continue
            value = self.expressions.constant(declared, bound, scope)
            complete = complete and value is not None
            if value is not None and (isinstance(value, bool) or (base == "int" and value != int(value))):
                raise self.reader.invalid(declared, bound, f"the bound of a bounded {base} cannot be {value}")
            bounds.append(value if value is None or base == "real" else int(value))
        lower, upper = bounds
        if not complete:
            return None
        if lower is not None and upper is not None and lower > upper:
            raise self.reader.invalid(item, key, f"the lower bound {lower} is above the upper bound {upper}")
        return Domain("int" if base == "int" else "real", lower, upper)

    def _initial(self, item: Json, key: str | int, value: Expression, domain: Domain) -> Exact:
        if not value.is_constant:
            raise self.reader.invalid(item, key, f"expected a constant, found {value}")
        if not assignable(domain.kind, value):
            raise self.reader.invalid(item, key, f"expected a value of type {domain.kind}, found {value.kind}")
        exact = value.exact
        if exact not in domain:
            raise self.reader.invalid(item, key, f"the value {exact} is outside the domain {domain}")
        return exact

    def _read_variables(
        self,
        declared: list[Json],
        scope: dict[str, Expression | tuple[Expression, ...] | Missing],
        instance: str | None,
    ) -> None:
        reader = self.reader
        for position, item in enumerate(declared):
            reader.object(item, declared, position, keys=frozenset(["name", "type", "initial-value", "transient"]))
            name = reader.get(item, "name", str)
            if instance is None:
                self._declare(scope, item, name)
            unique = self._unique_name(name, instance)
            transient = reader.get(item, "transient", bool, default=False)
            if transient and "initial-value" not in item:
                raise reader.invalid(item, None, f"the transient variable {name!r} needs an initial-value")
            if isinstance(item.get("type"), dict) and item["type"].get("kind") == "array":
                self._read_array(item, name, unique, scope, transient=transient)
                continue
            domain = self._domain(item, scope)
            initial = None
            if "initial-value" in item:
                expression = self.expressions.number_or_bool(item, "initial-value", scope)
                if expression is not None and domain is not None:
                    initial = self._initial(item, "initial-value", expression, domain)
            if domain is None:
                scope[name] = Missing()
                continue
            new = Variable(unique, domain, initial, transient)
            self.variables.append(new)
            scope[name] = new.expression

    def _unique_name(self, name: str, instance: str | None) -> str:
        taken = {item.name for item in self.variables} | set(self.arrays) | set(self.constants)
        unique = name if name not in taken or instance is None else f"{instance}.{name}"
        if instance is not None:
            while unique in taken:
                unique += "'"
            self.aliases[(instance, name)] = unique
        return unique

    def _read_array(
        self,
        item: dict[str, Json],
        name: str,
        unique: str,
        scope: dict[str, Expression | tuple[Expression, ...] | Missing],
        *,
        transient: bool,
    ) -> None:
        reader = self.reader
        reader.object(item["type"], item, "type", keys=frozenset(["kind", "base"]))
        base = item["type"].get("base")
        if isinstance(base, dict) and base.get("kind") == "array":
            reader.unsupported(item, "type", "arrays of arrays")
            scope[name] = Missing()
            return
        domain = self._domain(item["type"], scope, "base")
        if "initial-value" not in item:
            reader.unsupported(item, None, f"the array {name!r} without an initial value (its length is not known)")
            scope[name] = Missing()
            return
        value = self.expressions.read(item, "initial-value", scope)
        if value is None or domain is None:
            scope[name] = Missing()
            return
        if not isinstance(value, tuple):
            raise reader.invalid(item, "initial-value", "expected an array")
        elements = []
        for index, element in enumerate(value):
            initial = self._initial(item, "initial-value", element, domain)
            elements.append(Variable(f"{unique}[{index}]", domain, initial, transient))
        self.variables.extend(elements)
        self.arrays[unique] = tuple(element.name for element in elements)
        scope[name] = tuple(element.expression for element in elements)

    # Functions

    def _declare_functions(self, declared: list[Json], scope: Scope) -> None:
        """Signatures first, so that bodies may call functions that are declared later."""
        reader = self.reader
        for position, item in enumerate(declared):
            reader.object(item, declared, position, keys=frozenset(["name", "type", "parameters", "body"]))
            name = reader.get(item, "name", str)
            if name in self.functions:
                raise reader.invalid(item, "name", f"the function {name!r} is declared twice")
            result = self._domain(item, scope)
            parameters = []
            declared_parameters = reader.get(item, "parameters", list, default=[])
            for index, entry in enumerate(declared_parameters):
                reader.object(entry, declared_parameters, index, keys=frozenset(["name", "type"]))
                if isinstance(entry.get("type"), dict) and entry["type"].get("kind") == "array":
                    reader.unsupported(entry, "type", "functions with array parameters")
                    domain = None
                else:
                    domain = self._domain(entry, scope)
                kind: Kind = "int" if domain is None else domain.kind
                parameters.append(parameter(name, reader.get(entry, "name", str), kind))
            self.functions[name] = Function(tuple(parameters), None, "int" if result is None else result.kind)

    def _read_functions(self, declared: list[Json], scope: Scope) -> None:
        """Read the bodies, callees first."""
        by_name = {item["name"]: item for item in declared}
        calls = {name: _called_functions(item.get("body")) & set(by_name) for name, item in by_name.items()}
        finished: set[str] = set()
        while len(finished) < len(by_name):
            ready = [name for name in by_name if name not in finished and calls[name] <= finished]
            if not ready:
                for name in sorted(set(by_name) - finished):
                    self.reader.unsupported(by_name[name], "name", f"the recursive function {name!r}")
                return
            for name in ready:
                self._read_body(by_name[name], scope)
                finished.add(name)

    def _read_body(self, item: dict[str, Json], scope: Scope) -> None:
        name = item["name"]
        function = self.functions[name]
        names = dict(scope)
        for entry, expression in zip(item.get("parameters", []), function.parameters, strict=True):
            names[entry["name"]] = expression
        if "body" not in item:
            raise self.reader.invalid(item, None, "the entry 'body' is missing")
        body = self.expressions.number_or_bool(item, "body", names)
        if body is not None and not assignable(function.kind, body):
            raise self.reader.invalid(item, "body", f"expected a value of type {function.kind}, found {body.kind}")
        if body is not None and function.kind == "real":
            body = to_real(body)
        self.functions[name] = Function(function.parameters, body, function.kind)

    # Automata

    def _read_automata(self, root: dict[str, Json]) -> dict[str, Json]:
        """The automata by name; each use of one in the composition is read as an automaton of its own."""
        declared = self.reader.get(root, "automata", list)
        automata: dict[str, Json] = {}
        for position, item in enumerate(declared):
            self.reader.object(item, declared, position, keys=_AUTOMATON_KEYS)
            name = self.reader.get(item, "name", str)
            if name in automata:
                raise self.reader.invalid(item, "name", f"the automaton {name!r} is declared twice")
            automata[name] = item
        return automata

    def _read_system(
        self, root: dict[str, Json], automata: dict[str, Json]
    ) -> tuple[tuple[Synchronisation, ...], tuple[Automaton, ...]]:
        reader = self.reader
        system = reader.object(reader.get(root, "system", dict), root, "system", keys=frozenset(["elements", "syncs"]))
        declared = reader.get(system, "elements", list)
        if not declared:
            raise reader.invalid(system, "elements", "a system needs at least one automaton")
        elements: list[Automaton] = []
        uses: dict[str, int] = {}
        for position, element in enumerate(declared):
            reader.object(element, declared, position, keys=frozenset(["automaton", "input-enable"]))
            name = reader.get(element, "automaton", str)
            reader.one_of(element, "automaton", name, list(automata), "automaton")
            uses[name] = uses.get(name, 0) + 1
            instance = name if uses[name] == 1 else f"{name}#{uses[name]}"
            elements.append(self._read_automaton(automata[name], instance, element))
        if "syncs" not in system and len(elements) == 1:
            # The common reading of a single automaton without synchronisation: its actions are the labels.
            used = {edge.action for edge in elements[0].edges}
            return tuple(Synchronisation((name,), name) for name in self.actions if name in used), tuple(elements)
        return self._read_synchronisations(system, len(elements)), tuple(elements)

    def _read_synchronisations(self, system: dict[str, Json], count: int) -> tuple[Synchronisation, ...]:
        reader = self.reader
        declared = reader.get(system, "syncs", list, default=[])
        found = []
        for position, item in enumerate(declared):
            reader.object(item, declared, position, keys=frozenset(["synchronise", "result"]))
            actions = reader.get(item, "synchronise", list)
            if len(actions) != count:
                raise reader.invalid(
                    item, "synchronise", f"expected {count} entries (one per automaton), found {len(actions)}"
                )
            for index, action in enumerate(actions):
                if action is not None:
                    self._check_action(actions, index, action)
            result = item.get("result")
            if result is not None:
                self._check_action(item, "result", result)
            if all(action is None for action in actions):
                raise reader.invalid(item, "synchronise", "no automaton takes part")
            found.append(Synchronisation(tuple(actions), result))
        return tuple(found)

    def _check_action(self, container: Json, key: str | int, action: Json) -> None:
        self.reader.one_of(container, key, action, list(self.actions), "action")

    def _read_automaton(self, item: dict[str, Json], instance: str, element: dict[str, Json]) -> Automaton:
        reader = self.reader
        scope = dict(self.scope)
        self._read_variables(reader.get(item, "variables", list, default=[]), scope, instance)
        if item.get("functions"):
            reader.unsupported(item, "functions", "functions that are local to an automaton")
        declared = reader.get(item, "locations", list)
        locations: list[Location] = []
        for position, entry in enumerate(declared):
            reader.object(entry, declared, position, keys=frozenset(["name", "transient-values", "time-progress"]))
            if "time-progress" in entry:
                reader.unsupported(entry, "time-progress", "invariants on the progress of time")
            name = reader.get(entry, "name", str)
            if any(location.name == name for location in locations):
                raise reader.invalid(entry, "name", f"the location {name!r} is declared twice")
            locations.append(Location(name, self._transient_values(entry, scope)))
        names = [location.name for location in locations]
        initial = reader.get(item, "initial-locations", list)
        for position, name in enumerate(initial):
            reader.one_of(initial, position, name, names, "location")
        if not initial:
            raise reader.invalid(item, "initial-locations", "an automaton needs an initial location")
        edges = []
        declared_edges = reader.get(item, "edges", list)
        for position, entry in enumerate(declared_edges):
            reader.object(
                entry, declared_edges, position, keys=frozenset(["location", "action", "guard", "destinations", "rate"])
            )
            edges.append(self._read_edge(entry, scope, names))
        edges.extend(self._input_edges(element, edges, names))
        return Automaton(instance, tuple(locations), tuple(initial), tuple(edges), self._restriction(item, scope))

    def _restriction(self, item: dict[str, Json], scope: Scope) -> Expression:
        if "restrict-initial" not in item:
            return TRUE
        restriction = self.reader.object(item["restrict-initial"], item, "restrict-initial", keys=frozenset(["exp"]))
        return _or_true(self.expressions.boolean(restriction, "exp", scope))

    def _transient_values(self, entry: dict[str, Json], scope: Scope) -> tuple[Assignment, ...]:
        values = []
        declared = self.reader.get(entry, "transient-values", list, default=[])
        for position, item in enumerate(declared):
            self.reader.object(item, declared, position, keys=frozenset(["ref", "value"]))
            target = self._target(item, scope)
            value = self.expressions.number_or_bool(item, "value", scope) if "value" in item else None
            if target is None or value is None:
                continue
            if not isinstance(target, Expression) or not self._variable(target).transient:
                raise self.reader.invalid(item, "ref", "expected a transient variable")
            values.append(Assignment(target.name, value))
        return tuple(values)

    def _variable(self, target: Expression) -> Variable:
        return next(item for item in self.variables if item.name == target.name)

    def _read_edge(self, entry: dict[str, Json], scope: Scope, locations: list[str]) -> Edge:
        reader = self.reader
        source = reader.get(entry, "location", str)
        reader.one_of(entry, "location", source, locations, "location")
        if "rate" in entry:
            reader.unsupported(entry, "rate", "rates (continuous-time models)")
        action = entry.get("action")
        if action is not None:
            self._check_action(entry, "action", action)
        guard = TRUE
        if "guard" in entry:
            holder = reader.object(entry["guard"], entry, "guard", keys=frozenset(["exp"]))
            if "exp" not in holder:
                raise reader.invalid(holder, None, "the entry 'exp' is missing")
            guard = _or_true(self.expressions.boolean(holder, "exp", scope))
        declared = reader.get(entry, "destinations", list)
        if not declared:
            raise reader.invalid(entry, "destinations", "an edge needs at least one destination")
        destinations = []
        for position, item in enumerate(declared):
            reader.object(item, declared, position, keys=frozenset(["location", "probability", "assignments"]))
            destinations.append(self._read_destination(item, scope, locations))
        given = sum("probability" in item for item in declared)
        if given == sum(destination.probability is not None for destination in destinations):
            self._check_probabilities(entry, destinations)
        return Edge(source, tuple(destinations), action, guard)

    def _read_destination(self, item: dict[str, Json], scope: Scope, locations: list[str]) -> Destination:
        reader = self.reader
        location = reader.get(item, "location", str)
        reader.one_of(item, "location", location, locations, "location")
        probability = None
        if "probability" in item:
            holder = reader.object(item["probability"], item, "probability", keys=frozenset(["exp"]))
            if "exp" not in holder:
                raise reader.invalid(holder, None, "the entry 'exp' is missing")
            probability = self.expressions.number_or_bool(holder, "exp", scope)
            if probability is not None and probability.kind == "bool":
                raise reader.invalid(holder, "exp", "a probability is a number")
            probability = None if probability is None else to_real(probability)
        updates = []
        declared = reader.get(item, "assignments", list, default=[])
        for position, entry in enumerate(declared):
            reader.object(
                entry, declared, position, keys=frozenset(["ref", "value", "index", "lower-bound", "upper-bound"])
            )
            update = self._read_assignment(entry, scope)
            if update is not None:
                updates.append(update)
        return Destination(location, tuple(updates), probability)

    def _check_probabilities(self, entry: dict[str, Json], destinations: list[Destination]) -> None:
        """Constant probabilities must be probabilities; a sum that is off by rounding is tolerated."""
        total = Fraction(0)
        for destination in destinations:
            probability = destination.probability
            if probability is None:
                total += 1
            elif probability.is_constant:
                value = Fraction(probability.exact)
                if not 0 <= value <= 1:
                    raise self.reader.invalid(entry, "destinations", f"{value} is no probability")
                total += value
            else:
                return
        if abs(total - 1) > PROBABILITY_TOLERANCE:
            raise self.reader.invalid(entry, "destinations", f"the probabilities add up to {float(total):g}, not to 1")

    def _target(self, entry: dict[str, Json], scope: Scope) -> Expression | tuple[tuple[str, ...], Expression] | None:
        """What is assigned to: a variable, or (the elements of an array, the position in it)."""
        reader = self.reader
        if "ref" not in entry:
            raise reader.invalid(entry, None, "the entry 'ref' is missing")
        ref = entry["ref"]
        if isinstance(ref, dict) and ref.get("op") == "aa":
            for key in ("exp", "index"):
                if key not in ref:
                    raise reader.invalid(ref, None, f"the entry {key!r} is missing")
            array = self.expressions.read(ref, "exp", scope)
            index = self.expressions.number_or_bool(ref, "index", scope)
            if array is None or index is None:
                return None
            if not isinstance(array, tuple) or not all(element.is_variable for element in array):
                raise reader.invalid(ref, "exp", "expected an array variable")
            if index.kind != "int":
                raise reader.invalid(ref, "index", f"expected an integer, found {index.kind}")
            if index.is_constant:
                position = int(index.exact)
                if not 0 <= position < len(array):
                    raise reader.invalid(
                        ref, "index", f"index {position} is outside the array of {len(array)} elements"
                    )
                return array[position]
            return tuple(element.name for element in array), index
        target = self.expressions.read(entry, "ref", scope)
        if isinstance(target, tuple):
            reader.unsupported(entry, "ref", "assignments to whole arrays")
            return None
        if target is not None and not target.is_variable:
            raise reader.invalid(entry, "ref", f"{ref!r} is no variable")
        return target

    def _read_assignment(self, entry: dict[str, Json], scope: Scope) -> Update | None:
        reader = self.reader
        index = reader.get(entry, "index", int, default=0)
        target = self._target(entry, scope)
        if "value" not in entry and "lower-bound" in entry and "upper-bound" in entry:
            bounds = [self.expressions.number_or_bool(entry, key, scope) for key in ("lower-bound", "upper-bound")]
            lower, upper = bounds
            if target is None or lower is None or upper is None:
                return None
            if not isinstance(target, Expression):
                reader.unsupported(
                    entry, "ref", "a non-deterministic assignment to an array element at a variable index"
                )
                return None
            for key, bound in zip(("lower-bound", "upper-bound"), (lower, upper), strict=True):
                self._check_assignable(entry, key, target.kind, bound)
            return Choice(target.name, lower, upper, index)
        if "value" not in entry:
            raise reader.invalid(entry, None, "the entry 'value' is missing")
        value = self.expressions.read(entry, "value", scope)
        if isinstance(value, tuple):
            reader.unsupported(entry, "value", "assignments of whole arrays")
            return None
        if target is None or value is None:
            return None
        if isinstance(target, Expression):
            self._check_assignable(entry, "value", target.kind, value)
            return Assignment(target.name, value, index)
        elements, position = target
        kind = next(item.domain.kind for item in self.variables if item.name == elements[0])
        self._check_assignable(entry, "value", kind, value)
        return ArrayAssignment(elements, position, value, index)

    def _check_assignable(self, entry: Json, key: str, kind: Kind, value: Expression) -> None:
        if not assignable(kind, value):
            raise self.reader.invalid(entry, key, f"a variable of type {kind} cannot take a value of type {value.kind}")

    def _input_edges(self, element: dict[str, Json], edges: list[Edge], locations: list[str]) -> list[Edge]:
        """An input-enabled action is always possible: where no edge is, the automaton stays as it is."""
        added = []
        actions = self.reader.get(element, "input-enable", list, default=[])
        for position, action in enumerate(actions):
            self._check_action(actions, position, action)
            for location in locations:
                own = [edge.guard for edge in edges if edge.source == location and edge.action == action]
                guard = negation(disjunction(own))
                added.append(Edge(location, (Destination(location),), action, guard))
        return added


def _or_true(condition: Expression | None) -> Expression:
    """A condition that could not be read; the reading fails at its end, so any value will do."""
    return TRUE if condition is None else condition


def parse_constant(name: str, given: Exact | float | str, domain: Domain | None) -> Exact | None:
    """The value of a constant that the user gave, as text or as a Python value; exactly as written."""
    if domain is None:
        return None
    where = f"constant {name}"
    if isinstance(given, str):
        value = _parse_text(given, domain, where)
    else:
        value = given if isinstance(given, bool) else Fraction(given)
    if domain.kind == "int" and not isinstance(value, bool) and value == int(value):
        value = int(value)
    if domain.kind == "real" and isinstance(value, int) and not isinstance(value, bool):
        value = Fraction(value)
    if value not in domain:
        raise InvalidInput(f"the value {given} is outside the domain {domain}", where=where)
    return value


def _parse_text(given: str, domain: Domain, where: str) -> Exact:
    if domain.kind == "bool":
        if given not in ("true", "false"):
            raise InvalidInput(f"expected true or false, found {given!r}", where=where)
        return given == "true"
    if len(given) > 100:
        raise InvalidInput("a number of more than 100 characters", where=where)
    try:
        value = Fraction(given)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(f"expected a number, found {given!r}", where=where) from None
    return value


def _called_functions(body: Json) -> set[str]:
    """The names of all functions called anywhere in a JSON value."""
    found: set[str] = set()
    stack = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get("op") == "call" and isinstance(value.get("function"), str):
                found.add(value["function"])
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return found
