"""A class keeps few attributes, so that a reader can hold its state, and the console few lines. (ruff bounds the
complexity of functions.)"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 30
MOST_LINES = 7_500

#: Classes with more. A number may only fall; at 30 the row goes.
LARGER = {
    "sievemq_broker.config.Settings": 49,  # one for each setting
}


def attributes(owner: ast.ClassDef) -> set[str]:
    """The attributes of a class's objects: declared in its body or slots, or assigned by its methods."""
    found = {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    for statement in owner.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if not {"ClassVar", "Final"}.intersection(ast.unparse(statement.annotation).replace("[", " ").split()):
                found.add(statement.target.id)
        elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            found.update(ast.literal_eval(statement.value))
    return found


def test_attributes_are_counted() -> None:
    code = """class A:
    __slots__ = ("a", "b")
    c: int
    d: ClassVar[int] = 1
    def method(self):
        self.a = self.e = 1
        self.f += other.g
        other.h, self.i[0] = 1, 2
"""
    (owner,) = ast.parse(code).body
    assert isinstance(owner, ast.ClassDef)
    assert attributes(owner) == {"a", "b", "c", "e", "f"}


def test_no_class_has_more_attributes_than_a_reader_can_hold() -> None:
    found: dict[str, int] = {}
    for package in sorted(ROOT.glob("*/sievemq*/")):
        for path in package.rglob("*.py"):
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef) and (number := len(attributes(node))) > MOST:
                    found[f"{module}.{node.name}"] = number
    assert found == LARGER


def test_the_console_stays_small_enough_to_be_read() -> None:
    """It is served as it is written: plain modules, without a library or a build."""
    folder = ROOT / "broker/sievemq_broker/server/http/console"
    files = [path for path in folder.rglob("*") if path.suffix in (".js", ".css")]
    assert 0 < sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= MOST_LINES
