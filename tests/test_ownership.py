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


def foreign_assignments(module: ast.Module) -> int:
    """How often a module assigns to or deletes an attribute of anything but `self` and `cls`, STANDARD aside."""
    return sum(
        isinstance(target, ast.Attribute)
        and target.attr not in STANDARD
        and not (isinstance(target.value, ast.Name) and target.value.id in {"self", "cls"})
        for node in ast.walk(module)
        for target in targets(node)
    )


def test_an_assignment_from_outside_is_found() -> None:
    module = ast.parse("self.a = 1\nother.a = 2\na, (b.c, d) = 3, (4, 5)\nx.y.z += 1\ndel entry.envelope\ne[0] = 1\n")
    assert foreign_assignments(module) == 4


def test_no_attribute_is_changed_from_outside() -> None:
    found: Counter[str] = Counter()
    for package in sorted(ROOT.glob("*/sievemq*/")):
        for path in package.rglob("*.py"):
            part = path.relative_to(package).parts
            found[".".join((package.name, *part[:-1][:1]))] += foreign_assignments(ast.parse(path.read_bytes()))
    assert {name: number for name, number in found.items() if number} == {}
