"""An object's attributes are changed by its own methods only."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Attributes of the standard library's objects for which there is no other way to set them.
STANDARD = {
    "check_hostname": "ssl.SSLContext",
    "minimum_version": "ssl.SSLContext",
    "verify_mode": "ssl.SSLContext",
    "__signature__": "a function",
    "__annotations__": "a function",
    "buffer_text": "an expat parser",
    "StartDoctypeDeclHandler": "an expat parser",
    "StartElementHandler": "an expat parser",
    "EndElementHandler": "an expat parser",
    "CharacterDataHandler": "an expat parser",
}


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns to or deletes, tuples taken apart."""
    if isinstance(node, ast.Assign | ast.Delete):
        pending = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        pending = [node.target]
    else:
        return
    while pending:
        target = pending.pop()
        if isinstance(target, ast.Tuple | ast.List):
            pending += target.elts
        else:
            yield target


def own_names(method: ast.FunctionDef, owner: str) -> set[str]:
    """Loop variables of a method that are objects of its class, by the annotation of what it goes through."""
    collections = {
        parameter.arg
        for parameter in method.args.args
        if isinstance(parameter.annotation, ast.Subscript) and ast.unparse(parameter.annotation.slice) == owner
    }
    return {
        loop.target.id
        for loop in ast.walk(method)
        if isinstance(loop, ast.For)
        and isinstance(loop.target, ast.Name)
        and isinstance(loop.iter, ast.Name)
        and loop.iter.id in collections
    }


def foreign_assignments(module: ast.Module) -> int:
    """How often a module assigns to or deletes an attribute of an object of another class, STANDARD aside."""
    found = _foreign(module, {"self", "cls"})
    for owner in ast.walk(module):
        if isinstance(owner, ast.ClassDef):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and (own := own_names(method, owner.name)):
                    found += _foreign(method, {"self", "cls"} | own) - _foreign(method, {"self", "cls"})
    return found


def _foreign(part: ast.AST, own: set[str]) -> int:
    return sum(
        isinstance(target, ast.Attribute)
        and target.attr not in STANDARD
        and not (isinstance(target.value, ast.Name) and target.value.id in own)
        for node in ast.walk(part)
        for target in targets(node)
    )


def test_an_assignment_from_outside_is_found() -> None:
    module = ast.parse("self.a = 1\nother.a = 2\na, (b.c, d) = 3, (4, 5)\nx.y.z += 1\ndel entry.envelope\ne[0] = 1\n")
    assert foreign_assignments(module) == 4


def test_a_class_may_change_all_objects_of_a_list_of_its_own() -> None:
    method = "    def end(items: list[{}], other) -> None:\n        for item in items:\n            item.state = 1\n"
    assert foreign_assignments(ast.parse("class Item:\n" + method.format("Item"))) == 0
    assert foreign_assignments(ast.parse("class Item:\n" + method.format("Entry"))) == 1
    assert (
        foreign_assignments(ast.parse(method.format("Item").replace("    def", "def").replace("    for", "for"))) == 1
    )


def test_no_attribute_is_changed_from_outside() -> None:
    found: Counter[str] = Counter()
    for package in sorted(ROOT.glob("*/sievemq*/")):
        for path in package.rglob("*.py"):
            part = path.relative_to(package).parts
            found[".".join((package.name, *part[:-1][:1]))] += foreign_assignments(ast.parse(path.read_bytes()))
    assert {name: number for name, number in found.items() if number} == {}
