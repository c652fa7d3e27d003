"""All modules in the plans have a test, and the page with the verdicts lists the same modules."""

import inspect
import pkgutil
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.federation import conformance
from tests.federation.conformance.modules import PLANS

PAGE: Final = Path(__file__).parents[3] / "docs/reference/conformance.md"
VERDICTS: Final = {"PASSED", "REVIEW", "SKIPPED", "WARNING", "FAILED", "not run"}
_SHARED: Final = ("Basic OP", "Form Post Basic OP")  # both plans share a table


def _test_modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(conformance.__path__) if module.name.startswith("test_")]
    return [import_module(f"{conformance.__name__}.{name}") for name in names]


def _tests() -> dict[str, Callable[..., object]]:
    """Return the tests with a module's name, by this name."""
    functions = [function for module in _test_modules() for function in inspect.getmembers(module, inspect.isfunction)]
    return {name.removeprefix("test_").replace("_", "-"): test for name, test in functions if name.startswith("test_oidcc_")}


def test_each_module_of_the_plans_has_a_test_that_states_its_conditions() -> None:
    tests = _tests()
    modules = {module for plan in PLANS.values() for module in plan}
    assert sum(len(plan) for plan in PLANS.values()) == 84
    assert modules - tests.keys() == set(), "modules without a test"
    assert tests.keys() - modules == set(), "tests of modules that no plan has"
    for name, test in tests.items():
        assert test.__doc__, f"{name} has a docstring"


def test_the_modules_of_two_plans_are_tested_in_both_response_modes() -> None:
    tests = _tests()
    assert PLANS["Basic OP"] == PLANS["Form Post Basic OP"]
    assert [name for name in PLANS["Basic OP"] if "client" not in inspect.signature(tests[name]).parameters] == []


def test_the_page_shows_the_verdicts_of_all_modules() -> None:
    """The suite's verdicts are filled in by hand after a run. The modules come from the plans."""
    rows = {plan: _rows(plan) for plan in PLANS if plan not in _SHARED}
    rows |= dict.fromkeys(_SHARED, _rows(" and ".join(_SHARED)))
    assert {plan: tuple(row[0] for row in rows[plan]) for plan in PLANS} == PLANS
    cells = {cell for plan in rows.values() for row in plan for cell in row[1:]}
    assert cells <= VERDICTS, cells - VERDICTS
    assert {row[1] for plan in rows.values() for row in plan} == {"PASSED"}, "our tests pass"
    explained = _sections()["Skipped modules"]
    assert [row[0] for plan in rows.values() for row in plan if "SKIPPED" in row and f"`{row[0]}`" not in explained] == []


def _rows(title: str) -> list[list[str]]:
    """Return the rows in a section's table: the module and the verdicts."""
    lines = [line for line in _sections()[title].splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def _sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
