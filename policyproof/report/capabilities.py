"""`supports`: what is in a model, and everything in it that is not supported, in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from policyproof.engines.question import asks_for_safety
from policyproof.model.flat import flatten
from policyproof.model.properties import (
    Atom,
    Deadlock,
    Initial,
    Junction,
    Not,
    Property,
    Quantified,
    SafetyProperty,
    subformulas,
)
from policyproof.model.source import LoadedModel, load_model
from policyproof.report.terminal import console, format_number
from policyproof.run.errors import InvalidInput, UnsupportedFeature


def capabilities(path: Path, properties: Path | None, constants: Mapping[str, str]) -> dict[str, Any]:
    """A report on a model file; `supported` is false if any part of it cannot be read."""
    report: dict[str, Any] = {
        "schema": "policyproof-supports-1",
        "file": str(path),
        "supported": True,
        "unsupported": [],
    }
    try:
        loaded = load_model(path, constants=constants, properties=properties)
        flat = flatten(loaded.model)
    except UnsupportedFeature as error:
        report["supported"] = False
        report["unsupported"] = [{"where": item.where, "what": item.what} for item in error.features]
        return report
    model = loaded.model
    report["model"] = {
        "name": model.name,
        "type": model.type,
        "variables": [
            {"name": item.name, "domain": str(item.domain), "transient": item.transient} for item in model.variables
        ],
        "labels": list(model.labels),
        "automata": [item.name for item in model.automata],
        "constants": {name: str(value) for name, value in model.constants.items()},
        "operators": len(flat.operators),
        "real_valued": any(item.domain.kind == "real" for item in flat.variables),
    }
    report["properties"] = [_property(loaded, entry.name, index) for index, entry in enumerate(loaded.entries)]
    return report


def _property(loaded: LoadedModel, name: str, index: int) -> dict[str, Any]:
    try:
        prop = loaded.entries[index].read()
    except UnsupportedFeature as error:
        features = [{"where": item.where, "what": item.what} for item in error.features]
        return {"name": name, "readable": False, "engines": [], "unsupported": features}
    except InvalidInput as error:
        return {"name": name, "readable": False, "engines": [], "problem": str(error)}
    return {"name": name, "readable": True, "engines": engines_for(prop)}


def engines_for(prop: Property) -> list[str]:
    """The engines that answer a property of this form."""
    if isinstance(prop, SafetyProperty):
        if prop.unsafe is None:
            return []
        return ["explicit", "bmc"] if prop.predicates is None else ["explicit", "ppa", "bmc"]
    if asks_for_safety(prop):
        return ["explicit", "bmc"]
    temporal = (Atom, Deadlock, Initial, Not, Junction, Quantified)
    parts = list(subformulas(prop.formula))
    plain = all(isinstance(part, temporal) for part in parts)
    rewards = any(isinstance(part, Quantified) and part.path.reward_bounds for part in parts)
    return ["explicit"] if plain and not rewards and prop.aggregate in ("∀", "∃") else []


def show_capabilities(report: Mapping[str, Any]) -> None:
    out = console()
    if not report["supported"]:
        out.print(Text.assemble(("NOT SUPPORTED", "bold red"), f"  {report['file']}"))
        for item in report["unsupported"]:
            out.print(f"  {item['where']}: {item['what']}", markup=False)
        return
    model = report["model"]
    out.print(Text.assemble(("SUPPORTED", "bold green"), f"  {report['file']}"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("model", Text(f"{model['name']} ({model['type']})"))
    table.add_row("variables", f"{len(model['variables'])}{', some of them real' if model['real_valued'] else ''}")
    table.add_row("automata", Text(", ".join(model["automata"])))
    table.add_row("labels", Text(", ".join(model["labels"]) or "none"))
    table.add_row("operators", format_number(model["operators"]))
    out.print(table)
    for item in report["properties"]:
        engines = ", ".join(item["engines"]) or "no engine yet"
        out.print(f"  property {item['name']}: {engines}", markup=False)
        for feature in item.get("unsupported", []):
            out.print(f"    {feature['where']}: {feature['what']}", markup=False)
        if "problem" in item:
            out.print(f"    {item['problem']}", markup=False)
