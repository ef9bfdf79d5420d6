"""Reading and writing JANI, the file format of environments."""

from policyproof.model.jani.model import JaniModel, read_model
from policyproof.model.jani.properties import read_property_entries
from policyproof.model.jani.write import write_model

__all__ = ["JaniModel", "read_model", "read_property_entries", "write_model"]
