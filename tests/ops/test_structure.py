"""The source tree's shape: class names, folder sizes, and imports between core and ports."""

import ast
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import grimp

from tests import ROOT

LAYERS: Final = ("core", "ports", "adapters", "actors", "entrypoints", "ops", "tests")
LARGEST_FOLDER: Final = 25


def modules(*layers: str) -> list[Path]:
    return [path for layer in layers for path in sorted((ROOT / layer).rglob("*.py")) if "node_modules" not in path.parts]


def test_a_class_name_means_one_thing_in_core() -> None:
    places = defaultdict(list)
    for path in modules("core"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_folder_has_too_many_modules() -> None:
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in modules(*LAYERS))
    assert {folder: size for folder, size in sizes.items() if size > LARGEST_FOLDER} == {}


def test_data_in_answers_depend_on_rights_and_scopes() -> None:
    """`may_view` asks for the right and for the token's scope. These modules read the rights alone, to offer what a caller may do."""
    offering = {
        *("core/tenancy/groups.py", "core/tenancy/roles.py", "core/authentication/account_recovery.py"),
        "entrypoints/http/api/tenancy/roles.py",
    }
    paths = {str(path.relative_to(ROOT)) for path in modules("core", "entrypoints/http/api") if "acts_in.rights" in path.read_text()}
    assert paths - {"core/kernel/access.py"} == offering


def test_ports_import_only_the_model_and_no_model_mentions_a_port() -> None:
    """Imports for annotations count, too. Ports import `core/<area>/model/` and the kernel."""
    graph = grimp.build_graph("core", "ports", cache_dir=None, exclude_type_checking_imports=False)
    ports = {module for module in graph.modules if module.startswith("ports")}
    imported = {module for port in ports for module in graph.find_modules_directly_imported_by(port)} - ports
    models = {module for module in graph.modules if ".model." in f"{module}." or module.startswith("core.kernel.")}
    assert sorted(imported - models) == []
    assert [module for module in sorted(models) if graph.find_upstream_modules(module) - models - {"core", "core.kernel"}] == []
