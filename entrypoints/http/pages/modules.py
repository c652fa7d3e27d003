"""The page modules.

If a module has routes outside `/app`, the first sentence in its docstring is its text in the API description.

Pages that belong to a protocol are in `app`, beside its endpoints.
"""

import re
from collections.abc import Collection
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Final

from entrypoints.http import pages

_REFERENCE: Final = re.compile(r" \([^()]*\)(?=\.)")


def load(others: Collection[ModuleType]) -> list[tuple[ModuleType, str]]:
    """Return the modules with routes, ordered by name, with their texts. Modules in `others` are left out."""
    modules = [import_module(found.name) for found in walk_packages(pages.__path__, f"{pages.__name__}.")]
    return [(module, _text(module)) for module in modules if hasattr(module, "routes") and module not in others]


def _text(module: ModuleType) -> str:
    return _REFERENCE.sub("", (module.__doc__ or "").partition("\n")[0])
