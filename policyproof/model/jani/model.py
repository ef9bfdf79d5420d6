"""Reading a JANI model: declarations, automata, composition.  Properties are read on demand.

The result is `JaniModel`: the network with all constants fixed, the scope in which properties
and predicates are read, and the raw properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from policyproof.model.automata import Automaton, Exact, Model, ModelType, Synchronisation
from policyproof.model.jani.automata import AutomatonReader
from policyproof.model.jani.declarations import DeclarationReader
from policyproof.model.jani.expressions import ExpressionReader
from policyproof.model.jani.functions import FunctionReader
from policyproof.model.jani.reader import COMMENTS, Reader, shown
from policyproof.model.jani.scope import Function, Missing, Scope
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

_MODEL_KEYS = frozenset(
    ["jani-version", "name", "type", "features", "actions", "constants", "variables", "restrict-initial"]
    + ["properties", "automata", "system", "functions"]
)
_AUTOMATON_KEYS = frozenset(
    ["name", "variables", "restrict-initial", "locations", "initial-locations", "edges", "functions"]
)
_NO_NAMES = frozenset(["op", "fun", "name", "function", "automaton", "location", "file", "label", *COMMENTS])
"""Entries of a property whose strings are no names of constants."""


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
        self.given = dict(constants)
        self.functions: dict[str, Function] = {}
        self.reader = Reader(document)
        self.expressions = ExpressionReader(self.reader, self.functions)
        self.declarations = DeclarationReader(self.reader, self.expressions)
        self.actions: dict[str, None] = {}
        self.automata = AutomatonReader(self.declarations, self.actions)

    def read(self) -> JaniModel:
        reader, declarations = self.reader, self.declarations
        root = self._root()
        name = reader.get(root, "name", str)
        reader.get(root, "jani-version", int, default=1)
        model_type = self._model_type(root)
        self._read_features(root)
        self._read_actions(root)
        self.expressions.context.in_declarations = True
        declarations.read_constants(root, self.given)
        functions = FunctionReader(reader, declarations, self.functions)
        functions.declare(root)
        declarations.read_variables(root, declarations.scope, None)
        self.expressions.context.in_declarations = False
        # Functions may use global variables, which stand after them in the file.
        functions.read_bodies()
        synchronisations, elements = self._read_system(root)
        restriction = self.automata.restriction(root, declarations.scope)
        properties = reader.get(root, "properties", list, default=[])
        if reader.missing_constants:
            self._find_missing_constants(properties)
        reader.finish()
        model = Model(
            name=name,
            type=model_type,
            variables=tuple(declarations.variables.values()),
            actions=tuple(self.actions),
            automata=elements,
            synchronisations=synchronisations,
            restrict_initial=restriction,
            constants=declarations.constants,
            arrays=declarations.arrays,
            aliases=declarations.aliases,
        )
        return JaniModel(model, self.document, declarations.scope, self.functions, properties)

    def _root(self) -> dict[str, Json]:
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
        return self.reader.object(root, root, None, keys=_MODEL_KEYS)

    def _model_type(self, root: dict[str, Json]) -> ModelType:
        name = self.reader.get(root, "type", str)
        if name in UNSUPPORTED_TYPES:
            self.reader.unsupported(root, "type", f"models of type {name!r} (supported: lts, dtmc, mdp)")
            return "mdp"
        self.reader.one_of(root, "type", name, MODEL_TYPES, "model type")
        return MODEL_TYPES[name]

    def _read_features(self, root: dict[str, Json]) -> None:
        features: list[Json] = self.reader.get(root, "features", list, default=[])
        for position, feature in enumerate(self.reader.texts(features)):
            if feature not in SUPPORTED_FEATURES:
                self.reader.unsupported(features, position, f"the JANI feature {shown(feature)}")

    def _read_actions(self, root: dict[str, Json]) -> None:
        for item in self.reader.objects(root, "actions", keys=frozenset(["name"])):
            name = self.reader.get(item, "name", str)
            if name in self.actions:
                raise self.reader.invalid(item, "name", f"the action {shown(name)} is declared twice")
            self.actions[name] = None

    def _find_missing_constants(self, properties: list[Json]) -> None:
        """The model lacks values already: name those that its properties would lack, too."""
        stack = list(properties)
        while stack:
            value = stack.pop()
            if isinstance(value, dict):
                stack.extend(entry for key, entry in value.items() if key not in _NO_NAMES)
            elif isinstance(value, list):
                stack.extend(value)
            elif isinstance(value, str):
                found = self.declarations.scope.get(value)
                if isinstance(found, Missing) and found.name is not None:
                    self.reader.missing_constants[found.name] = None

    # Composition

    def _read_system(self, root: dict[str, Json]) -> tuple[tuple[Synchronisation, ...], tuple[Automaton, ...]]:
        reader = self.reader
        automata: dict[str, dict[str, Json]] = {}
        for item in reader.objects(root, "automata", keys=_AUTOMATON_KEYS, optional=False):
            name = reader.get(item, "name", str)
            if name in automata:
                raise reader.invalid(item, "name", f"the automaton {shown(name)} is declared twice")
            automata[name] = item
        system = reader.object(reader.get(root, "system", dict), root, "system", keys=frozenset(["elements", "syncs"]))
        declared = reader.objects(system, "elements", keys=frozenset(["automaton", "input-enable"]), optional=False)
        if not declared:
            raise reader.invalid(system, "elements", "a system needs at least one automaton")
        elements: list[Automaton] = []
        uses: dict[str, int] = {}
        for element in declared:
            name = reader.choice(element, "automaton", automata, "automaton")
            uses[name] = uses.get(name, 0) + 1
            instance = name if uses[name] == 1 else f"{name}#{uses[name]}"
            elements.append(self.automata.read(automata[name], instance, element))
        if "syncs" not in system and len(elements) == 1:
            # The common reading of a single automaton without synchronisation: its actions are the labels.
            used = {edge.action for edge in elements[0].edges}
            return tuple(Synchronisation((name,), name) for name in self.actions if name in used), tuple(elements)
        return self._read_synchronisations(system, len(elements)), tuple(elements)

    def _read_synchronisations(self, system: dict[str, Json], count: int) -> tuple[Synchronisation, ...]:
        reader = self.reader
        found = []
        for item in reader.objects(system, "syncs", keys=frozenset(["synchronise", "result"])):
            actions = reader.get(item, "synchronise", list)
            if len(actions) != count:
                message = f"expected {count} entries (one per automaton), found {len(actions)}"
                raise reader.invalid(item, "synchronise", message)
            for index, action in enumerate(actions):
                if action is not None:
                    reader.one_of(actions, index, action, self.actions, "action")
            result = item.get("result")
            if result is not None:
                reader.one_of(item, "result", result, self.actions, "action")
            if all(action is None for action in actions):
                raise reader.invalid(item, "synchronise", "no automaton takes part")
            found.append(Synchronisation(tuple(actions), result))
        return tuple(found)
