"""The event descriptions, read from the functions in `core` that make events."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from core.kernel.event_catalog import EVENT_KINDS

CORE: Final = Path(__file__).parents[2] / "core"


def sentences(text: str | None) -> str:
    """Return a docstring's first paragraph in one line, without references to the specification."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return re.sub(r" \((?:security|decisions?|docs/)[^)]*\)", "", paragraph)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A function that makes events, the functions that it can call, and the arguments from its caller, with their scopes."""

    function: ast.FunctionDef
    functions: Mapping[str, ast.FunctionDef]
    arguments: Mapping[str, tuple[ast.expr, "_Scope"]] = field(default_factory=dict)

    def of_call(self, call: ast.Call, name: str) -> "_Scope":
        """Return a called function's scope."""
        function = self.functions[name]
        arguments = {parameter.arg: (value, self) for parameter, value in zip(function.args.args, call.args, strict=False)}
        return _Scope(function, self.functions, arguments | {each.arg: (each.value, self) for each in call.keywords if each.arg})


def described_events() -> dict[str, tuple[list[str], list[str]]]:
    """Return the docstrings and the data fields by event name, read from the functions that make events."""
    descriptions: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    trees = [ast.parse(page.read_text("utf-8")) for page in sorted(CORE.rglob("events.py"))]
    modules = [{node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} for tree in trees]
    functions = {name: function for module in modules for name, function in module.items()}
    for module in modules:
        for function in module.values():
            for name, fields in _made_events(_Scope(function, functions | module)):
                texts, all_fields = descriptions[name]
                texts.extend(text for text in [sentences(ast.get_docstring(function))] if text not in texts)
                all_fields.extend(each for each in fields if each not in all_fields)
    return descriptions


def _made_events(scope: _Scope) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the fields of every event that a function makes, itself or by a function that it gives the name."""
    for node in ast.walk(scope.function):
        match node:
            case ast.Call(func=ast.Name(id="Event"), args=[kind, *_]):
                options = {option.arg: option.value for option in node.keywords}
                fields = list(_fields(options.get("data") or options.get("details"), scope))
                yield from ((name, fields) for name in _event_names(kind, scope))
            case ast.Call(func=ast.Name(id=helper), args=[ast.Constant(value=str(name)), *_]) if (
                helper in scope.functions and name in EVENT_KINDS
            ):
                yield from _made_events(scope.of_call(node, helper))
            case _:
                pass


def _event_names(kind: ast.expr, scope: _Scope) -> list[str]:
    arguments = [scope.arguments[node.id][0] for node in ast.walk(kind) if isinstance(node, ast.Name) and node.id in scope.arguments]
    names = [name for node in (kind, *arguments) for name in _known_names(node)]
    return names or _known_names(scope.function)  # all names, if the function makes several events


def _known_names(node: ast.AST) -> list[str]:
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [text for text in texts if text in EVENT_KINDS]


def _fields(value: ast.expr | None, scope: _Scope) -> Iterator[str]:
    """Yield the keys in a dictionary expression in Markdown, following names, arguments and helper functions."""
    match value:
        case ast.Dict():
            yield from _fields_of_dict(value, scope)
        case ast.DictComp():
            yield "changed fields"
        case ast.BinOp(left=left, right=right):
            yield from _fields(left, scope)
            yield from _fields(right, scope)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _fields(body, scope)
            yield from _fields(orelse, scope)
        case ast.Name(id=name) if name in scope.arguments:
            yield from _fields(*scope.arguments[name])
        case ast.Name(id=name):
            yield from _assigned(name, scope)
        case ast.Call(func=ast.Name(id="field_changes"), args=arguments):
            yield from (f"`{argument.value!s}`" for argument in arguments if isinstance(argument, ast.Constant))
        case ast.Call(func=ast.Name(id=name)) if name in scope.functions:
            yield from _returned(scope.of_call(value, name))
        case _:
            pass


def _fields_of_dict(value: ast.Dict, scope: _Scope) -> Iterator[str]:
    for key, item in zip(value.keys, value.values, strict=True):
        if key is None:
            yield from _fields(item, scope)
        elif isinstance(key, ast.Constant):
            yield f"`{key.value!s}`"


def _returned(scope: _Scope) -> Iterator[str]:
    for node in ast.walk(scope.function):
        if isinstance(node, ast.Return):
            yield from _fields(node.value, scope)


def _assigned(name: str, scope: _Scope) -> Iterator[str]:
    for node in ast.walk(scope.function):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            match target:
                case ast.Name(id=variable) if variable == name:
                    yield from _fields(node.value, scope)  # type: ignore[attr-defined]
                case ast.Subscript(value=ast.Name(id=variable), slice=ast.Constant(value=str(key))) if variable == name:
                    yield f"`{key}`"
                case ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]) if name in (first, second):
                    items = getattr(node.value, "elts", [None, None])  # type: ignore[attr-defined]
                    yield from _fields(items[0 if name == first else 1], scope)
                case _:
                    pass
