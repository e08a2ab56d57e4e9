"""Every remedy of the product as a text, read from the source code; `HOLE` stands for values.

A remedy is the value of a parameter or variable named ``remedy``. Names, calls, and pairs of a
problem and its remedy are followed to the texts that they stand for.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "cdc", "bootstrap", "tributary_reader", "operate", "stack")
HOLE = "{}"
"""Stands for a value in the text of a remedy."""

NAME = "remedy"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class UnreadableError(Exception):
    """The texts of an expression cannot be found in the source code."""


@dataclass
class Module:
    """One source file.

    Args:
        path: The path from the root of the repository.
        tree: The syntax tree of the file.
        around: By the id of a node, the innermost function around the node.
        imports: By an imported name, the files from which it may be imported.
    """

    path: str
    tree: ast.Module
    around: dict[int, _Function] = field(default_factory=dict)
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for function in ast.walk(self.tree):
            if isinstance(function, _FUNCTIONS):
                self.around.update((id(part), function) for part in ast.walk(function))
            elif isinstance(function, ast.ImportFrom) and function.module:
                folder = function.module.replace(".", "/")
                for one in function.names:
                    files = (f"{folder}.py", f"{folder}/{one.name}.py", f"{folder}/__init__.py")
                    self.imports[one.asname or one.name] = files


@cache
def modules() -> tuple[Module, ...]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return tuple(
        Module(str(file.relative_to(ROOT)), ast.parse(file.read_text("utf-8"))) for file in files
    )


@cache
def _definitions() -> dict[str, list[tuple[Module, ast.AST]]]:
    """The functions, classes and constants of all modules, by name."""
    found: dict[str, list[tuple[Module, ast.AST]]] = {}
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                found.setdefault(node.name, []).append((module, node))
        for statement in module.tree.body:
            for name, value, _ in _assigned(statement):
                found.setdefault(name, []).append((module, value))
    return found


def _meant(module: Module, name: str, owner: str | None = None) -> list[tuple[Module, ast.AST]]:
    """The definitions that a name in a module may mean.

    They are the module's own definitions, else those of its imports, else all of this name.
    """
    found = _definitions().get(name, [])
    imported = module.imports.get(owner or name)
    return (
        [one for one in found if owner in (None, "self") and one[0] is module]
        or [one for one in found if imported is not None and one[0].path in imported]
        or found
    )


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr, int | None]]:
    """The names to which a statement assigns; each with the value, and with the item of a tuple."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _targets(node.target, node.value)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from _targets(node.target, node.iter)


def _targets(
    target: ast.expr, value: ast.expr, item: int | None = None
) -> Iterator[tuple[str, ast.expr, int | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value, item
    elif isinstance(target, ast.Tuple):
        for at, one in enumerate(target.elts):
            yield from _targets(one, value, at)


@cache
def remedies() -> dict[str, str]:
    """Each remedy's text with one place in the source code that gives it.

    Raises:
        UnreadableError: An expression that is given as a remedy cannot be followed.
    """
    found: dict[str, str] = {}
    for module in modules():
        for node in ast.walk(module.tree):
            for given, item in _given(module, node):
                place = f"{module.path}:{given.lineno}"
                try:
                    texts = list(_texts(module, given, item))
                except (UnreadableError, RecursionError) as error:
                    raise UnreadableError(f"{place}: {error}") from None
                found.update((text, place) for text in texts if text.strip("{} "))
    return found


def _given(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, int | None]]:
    """The expressions in a node that give a remedy.

    Each comes with a number if the remedy is that item of a pair, or with None.
    """
    if isinstance(node, ast.Call):
        yield from ((one.value, None) for one in node.keywords if one.arg == NAME)
        at = _place(module, node.func)
        for place, value in enumerate(node.args):
            if isinstance(value, ast.Starred) and at is not None and place <= at:
                yield value.value, at - place
            elif place == at:
                yield value, None
    else:
        yield from ((value, item) for name, value, item in _assigned(node) if name == NAME)


def _called_name(function: ast.expr) -> tuple[str, str | None]:
    """The name of a called function, and the name of the module or object that has it."""
    if isinstance(function, ast.Name):
        return function.id, None
    if isinstance(function, ast.Attribute):
        return function.attr, getattr(function.value, "id", "")
    return "", None


def _place(module: Module, function: ast.expr) -> int | None:
    """The position of parameter ``remedy`` of a product's function or class, without ``self``."""
    for _, node in _meant(module, *_called_name(function)):
        parameters = _parameters(node)
        if NAME in parameters:
            return parameters.index(NAME)
    return None


def _parameters(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef):
        for made in (one for one in node.body if getattr(one, "name", "") == "__init__"):
            return _parameters(made)
        return [
            one.target.id
            for one in node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
    if isinstance(node, _FUNCTIONS):
        return [one.arg for one in node.args.args if one.arg not in ("self", "cls")]
    return []


def _texts(module: Module, node: ast.expr, item: int | None = None) -> Iterator[str]:
    """The texts that an expression can have, or an item of its pairs; none if it is a parameter."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from _joined(module, node)
    elif isinstance(node, ast.BinOp):
        for pair in itertools.product(_texts(module, node.left), _texts(module, node.right)):
            yield "".join(pair)
    elif isinstance(node, (ast.Tuple, ast.List)) and item is not None:
        pairs = all(isinstance(one, ast.Tuple) for one in node.elts)
        for one in node.elts if pairs else node.elts[item : item + 1]:
            yield from _texts(module, one, item if pairs else None)
    elif isinstance(node, (ast.IfExp, ast.BoolOp, ast.Dict)):
        for one in _choices(node):
            yield from _texts(module, one, item)
    elif isinstance(node, (ast.Subscript, ast.Attribute, ast.Name)):
        yield from _referred(module, node, item)
    elif isinstance(node, ast.Call):
        yield from _called(module, node, item)
    elif isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        yield from _texts(module, node.elt, item)
    else:
        raise UnreadableError(ast.unparse(node))


def _referred(
    module: Module, node: ast.Subscript | ast.Attribute | ast.Name, item: int | None
) -> Iterator[str]:
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key != NAME:
            yield from _texts(module, node.value, key if isinstance(key, int) else item)
    elif isinstance(node, ast.Attribute):
        if node.attr.strip("_") != NAME:
            yield from _named(module, node, node.attr, item)
    else:
        yield from _named(module, node, node.id, item)


def _choices(node: ast.IfExp | ast.BoolOp | ast.Dict) -> list[ast.expr]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values


def _joined(module: Module, node: ast.JoinedStr) -> Iterator[str]:
    parts: list[list[str]] = []
    for part in node.values:
        value = part.value if isinstance(part, ast.FormattedValue) else part
        try:
            told = list(_texts(module, value))
        except UnreadableError:
            told = []
        parts.append(told or [HOLE])
    yield from ("".join(one) for one in itertools.product(*parts))


def _named(module: Module, node: ast.expr, name: str, item: int | None) -> Iterator[str]:
    function = module.around.get(id(node))
    if function is not None and isinstance(node, ast.Name):
        given = [
            (value, item if at is None else at)
            for part in ast.walk(function)
            for target, value, at in _assigned(part)
            if target == name and not _mentions(value, name)
        ]
        for value, at in given:
            yield from _texts(module, value, at)
        parameters = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
        if given or name in parameters:
            return  # what callers give is followed where they give it
    found = [one for one in _meant(module, name) if isinstance(one[1], ast.expr)]
    if not found:
        raise UnreadableError(name)
    for where, value in found:
        if isinstance(value, ast.expr):
            yield from _texts(where, value, item)


def _called(module: Module, node: ast.Call, item: int | None) -> Iterator[str]:
    name, owner = _called_name(node.func)
    if name in ("str", "list", "next") and owner is None:
        yield from _texts(module, node.args[0], item)
    elif name in ("strip", "format", "items", "replace") and isinstance(node.func, ast.Attribute):
        yield from _texts(module, node.func.value, item)
    elif name == "get":
        for default in node.args[1:]:
            yield from _texts(module, default, item)
    elif name == "join":
        yield HOLE
    else:
        here = module.around.get(id(node))
        meant = _meant(module, name, owner)
        called = [one for one in meant if isinstance(one[1], _FUNCTIONS) and one[1] is not here]
        if not called:
            raise UnreadableError(ast.unparse(node))
        for argument in node.args:  # what is given as a text may come back
            if isinstance(argument, (ast.Constant, ast.JoinedStr)) and item is None:
                yield from (text for text in _texts(module, argument) if " " in text.strip())
        for where, one in called:
            yield from _returned(where, one, item)


def _returned(module: Module, function: ast.AST, item: int | None) -> Iterator[str]:
    for part in ast.walk(function):
        if isinstance(part, (ast.Return, ast.Yield, ast.YieldFrom)) and part.value is not None:
            yield from _texts(module, part.value, item)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
