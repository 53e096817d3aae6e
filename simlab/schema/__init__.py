"""What a run holds, declared, read from spaces or files, or inferred."""

from simlab.schema.schema import MAIN, Schema
from simlab.schema.variable import INHERIT, Variable

__all__ = ["INHERIT", "MAIN", "Schema", "Variable"]
