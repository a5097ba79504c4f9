"""One word, one thing: inside a package folder a constant or a class of one name is defined once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of a module's constants and classes, and what they are. A Protocol is only a view of a class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            if not any("Protocol" in ast.unparse(base) for base in node.bases):
                yield node.name, ast.unparse(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id.isupper() and len(target.id.strip("_")) > 1:
                    yield target.id, ast.unparse(node.value)


def test_a_name_means_one_thing_in_a_folder() -> None:
    """A name that only one module of the folder uses, as its underscore says, may occur in several."""
    found: dict[tuple[str, str], dict[str, tuple[bool, str]]] = defaultdict(dict)
    for package in sorted(ROOT.glob("*/sievemq*/")):
        for path in package.rglob("*.py"):
            for name, meaning in definitions(ast.parse(path.read_bytes())):
                key = path.parent.relative_to(ROOT).as_posix(), name.strip("_")
                found[key][path.name] = not name.startswith("_"), meaning
    several = {
        f"{folder}: {name} in {', '.join(sorted(where))}"
        for (folder, name), where in found.items()
        if any(public for public, _ in where.values()) and len({meaning for _, meaning in where.values()}) > 1
    }
    assert several == set()
