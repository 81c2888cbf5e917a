"""Stands in for the library of that name: what `__init__.pyi` names is imported when asked for."""

import ast
import importlib
from pathlib import Path


def attach_stub(package, file):
    "The `__getattr__`, `__dir__` and `__all__` of a package."
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    places = {
        alias.asname or alias.name: (f"{package}.{node.module}", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name):
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        where, own = places[name]
        try:
            return getattr(importlib.import_module(where), own)
        except ModuleNotFoundError:
            importlib.import_module(f"{package}.page.torch_names").missing(f"{package}.{name}")

    return get, lambda: list(places), list(places)
