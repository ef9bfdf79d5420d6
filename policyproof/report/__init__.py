"""What people and programs get to see: tables, progress, and JSON.

The JSON of every command has a schema (JSON Schema 2020-12) beside this file, by its word in the entry
`schema`: `policyproof-result-1` is described in `result.schema.json`.  From a program:

    importlib.resources.files("policyproof.report").joinpath("result.schema.json").read_text()
"""
