"""`policy inspect`: how a policy is connected to a model, and whether it was imported faithfully."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from policyproof.model.json_text import read_file
from policyproof.model.source import LoadedModel
from policyproof.model.text import format_expression
from policyproof.policy.formats import compare_with_runtime, read_network
from policyproof.policy.load import load_policy
from policyproof.policy.network import Activation, Affine, Clip, Network
from policyproof.report.terminal import console


def inspect_policy(model: LoadedModel, path: Path, vecnormalize: Path | None) -> dict[str, Any]:
    """A report on a policy; every network is compared with its original runtime, if that is installed."""
    policy = load_policy(path, model, vecnormalize=vecnormalize)
    # What the interface says of scaling comes before the file's own layers, which alone are compared.
    activation = read_file(policy.files[0]).root.get("activation")
    comparisons = []
    for name in policy.files[1:]:
        if Path(name).suffix in (".onnx", ".pt", ".pth", ".zip"):
            comparison = compare_with_runtime(Path(name), read_network(Path(name), activation=activation))
            comparisons.append(
                {
                    "file": name,
                    "runtime": comparison.runtime,
                    "largest_difference": comparison.largest_difference,
                    "largest_relative_difference": comparison.largest_relative_difference,
                    "note": comparison.note,
                }
            )
    return {
        "schema": "policyproof-policy-report-1",
        "source": policy.source,
        "inputs": [format_expression(expression) for expression in policy.inputs],
        "labels": list(policy.labels),
        "action_variables": list(policy.action_variables),
        "filter": policy.filter,
        "switch": None if policy.switch is None else format_expression(policy.switch),
        "switch_values": list(policy.switch_values),
        "networks": [_network(network) for network in policy.networks],
        "comparisons": comparisons,
        "environment_labels": [label for label in model.model.labels if label not in policy.labels],
    }


def _network(network: Network) -> dict[str, Any]:
    return {
        "file": network.source,
        "precision": network.precision,
        "layers": [_layer(layer) for layer in network.layers],
        "parameters": sum(
            layer.weights.size + layer.bias.size for layer in network.layers if isinstance(layer, Affine)
        ),
    }


def _layer(layer: Any) -> str:
    if isinstance(layer, Affine):
        return f"affine {layer.sizes[0]} -> {layer.sizes[1]}"
    if isinstance(layer, Activation):
        return layer.kind if layer.kind != "leaky_relu" else f"leaky_relu({layer.slope:g})"
    return "clip" if isinstance(layer, Clip) else "normalise"


def show_policy(report: Mapping[str, Any]) -> None:
    out = console()
    out.print(Text(report["source"], "bold"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for number, name in enumerate(report["inputs"]):
        table.add_row("inputs" if number == 0 else "", Text(f"{number}: {name}"))
    for number, name in enumerate(report["labels"] or report["action_variables"]):
        what = "labels" if report["labels"] else "action variables"
        table.add_row(what if number == 0 else "", Text(f"{number}: {name}"))
    table.add_row(
        "filter", "applicable labels only" if report["filter"] else "none: an inapplicable choice stops the policy"
    )
    if report["switch"] is not None:
        table.add_row("switch", Text(f"{report['switch']} in {report['switch_values']}"))
    if report["environment_labels"]:
        names = ", ".join(report["environment_labels"])
        table.add_row("environment", Text(f"labels that no output names: {names}"))
    for network in report["networks"]:
        size = f"{network['precision']}, {network['parameters']} parameters"
        table.add_row("network", Text(f"{network['file']} ({size})"))
        table.add_row("", ", ".join(network["layers"]))
    out.print(table)
    for item in report["comparisons"]:
        if item["runtime"] is None:
            out.print(f"  not compared: {item['note']}")
        else:
            difference = item["largest_relative_difference"]
            out.print(
                f"  {item['file']}: outputs of {item['runtime']} agree to {difference:.1e} of their size "
                f"({item['note']})",
                markup=False,
            )
