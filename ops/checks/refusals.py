"""A use case's refusals, read from the code: `python -m ops.checks.refusals core.tenancy.members.remove`.

Without a name, refuse every `Raises:` in core and entrypoints if no caller catches its errors: the code tells these errors.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

LAYERS: Final = ("core", "adapters", "actors", "entrypoints")
REPOSITORY: Final = re.compile(r"^    (\w+) = Kept\([\w.]+, (?:\w+\.)?(\w+)\)", re.MULTILINE)
WRITES: Final = re.compile(r"\b(?:insert|update|assignments)\b")
LISTED: Final = re.compile(r"(?<=\s)Raises: ((?:[A-Z]\w+(?:, (?:or )?|; | or )?)+)\.")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module with its functions, and the full names that it imports."""

    name: str
    path: Path
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)


def read(root: Path) -> dict[str, Module]:
    """Return the layers' modules by their names."""
    modules = {}
    for path in (path for layer in LAYERS for path in sorted((root / layer).rglob("*.py"))):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        module = Module(name, path.relative_to(root), ast.parse(path.read_bytes()))
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                module.functions.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                module.imported.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
        modules[name] = module
    return modules


def name_of(node: ast.expr | None) -> str:
    """Return the last name in an expression such as `errors.Limited(5)`, or nothing."""
    match node:
        case ast.Call(func=inner):
            return name_of(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def raised_in(function: Function) -> Iterator[str]:
    """Yield the errors that the function itself raises."""
    for node in ast.walk(function):
        if isinstance(node, ast.Raise):
            yield name_of(node.exc)
        elif isinstance(node, ast.Call) and name_of(node) == "refuse" and node.args:
            yield name_of(node.args[0])


class Code:
    """The product's call graph, as far as names tell it."""

    def __init__(self, root: Path) -> None:
        self.modules = read(root)
        repositories = (root / "adapters/postgres/repositories.py").read_text()
        self._class_of = dict(REPOSITORY.findall(repositories))
        # By repository class and method: the constraints' refusals, if the method writes.
        self._constraints: dict[tuple[str, str], set[str]] = {}
        for node in (node for module in self.modules.values() for node in module.tree.body if isinstance(node, ast.ClassDef)):
            tables = [line.value for line in node.body if isinstance(line, ast.AnnAssign) and name_of(line.target) == "constraints"]
            refused = {name_of(value) for table in tables if isinstance(table, ast.Dict) for value in table.values}
            for method in (each for each in node.body if refused and isinstance(each, Function) and WRITES.search(ast.unparse(each))):
                self._constraints[node.name, method.name] = refused

    def find(self, module: Module, called: ast.expr) -> tuple[Module, str] | None:
        """Return a called function's module and name, or None if it is no product function."""
        match called:
            case ast.Name(id=name) if name in module.functions:
                return module, name
            case ast.Name(id=name):
                home, _, name = module.imported.get(name, "").rpartition(".")
            case ast.Attribute(value=ast.Name(id=alias), attr=name):
                home = module.imported.get(alias, "")
            case _:
                return None
        return (self.modules[home], name) if home in self.modules and name in self.modules[home].functions else None

    def refusals(self, module: Module, name: str, seen: set[tuple[str, str]]) -> set[str]:
        """Return the error names that the function, or a function that it calls, can raise."""
        if (module.name, name) in seen:
            return set()
        seen.add((module.name, name))
        function = module.functions[name]
        errors = {name for name in raised_in(function) if name[:1].isupper()}
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Attribute):
                errors |= self._constraints.get((self._class_of.get(call.func.value.attr, ""), call.func.attr), set())
            elif (found := self.find(module, call.func)) is not None:
                errors |= self.refusals(*found, seen)
        return errors

    def catches(self) -> list[tuple[set[str], set[str]]]:
        """Return a pair for every block that catches errors: the names in the block, and the error names."""
        blocks = []
        for node in (node for module in self.modules.values() for node in ast.walk(module.tree)):
            match node:
                case ast.Try(handlers=handlers, body=body) | ast.TryStar(handlers=handlers, body=body):
                    caught = [handler.type for handler in handlers if handler.type]
                case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                    calls = [item.context_expr for item in items if name_of(item.context_expr) == "suppress"]
                    caught = [argument for call in calls if isinstance(call, ast.Call) for argument in call.args]
                case _:
                    continue
            used = {name_of(each) for line in body for each in ast.walk(line) if isinstance(each, ast.Attribute | ast.Name)}
            blocks.append((used, {name_of(each) for kind in caught for each in ast.walk(kind) if isinstance(each, ast.expr)}))
        return blocks

    def unneeded(self) -> Iterator[str]:
        """Yield a sentence for every function with a list of errors that no caller catches."""
        blocks = self.catches()
        bases = {
            node.name: {name_of(base) for base in node.bases}
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        }

        @cache
        def kinds(name: str) -> frozenset[str]:
            return frozenset({name}).union(*(kinds(base) for base in bases.get(name, ())))

        for module in (module for module in self.modules.values() if module.path.parts[0] in ("core", "entrypoints")):
            for function in module.functions.values():
                listed = LISTED.search(" ".join((ast.get_docstring(function) or "").split()))
                if listed and not any(
                    function.name in used and any(kinds(each) & caught for each in re.findall(r"\w+", listed[1]) if each != "or")
                    for used, caught in blocks
                ):
                    yield f"{module.path}:{function.lineno}: no caller of {function.name} catches {listed[1]}: leave the list out"


def main(root: Path, arguments: list[str]) -> int:
    """Print the refusals by the functions in `arguments`. Without arguments, print the unneeded lists, and return 1 if there are any."""
    code = Code(root)
    for argument in arguments:
        home, _, name = argument.rpartition(".")
        print("\n".join(sorted(code.refusals(code.modules[home], name, set()))))
    problems = [] if arguments else list(code.unneeded())
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), sys.argv[1:]))
