"Modules that can still be imported under their old names, for one version."

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def renamed(old: str, new: str, **names: str) -> Callable[[str], Any]:
    "The `__getattr__` of a module that has been renamed; `names`: old name = new name."

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        warnings.warn(f"{old} is {new} now", DeprecationWarning, stacklevel=2)
        return getattr(import_module(new), names.get(name, name))

    return get
