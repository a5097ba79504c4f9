"""The pages of the Python API: one for each public class with methods, the rest beside the index of its package.

What stands on them is written by mkdocstrings from the docstrings; here is only which name stands where.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping

from website.markup import cell, roles, row
from website.navigation import Entry

PACKAGES = ("sievemq", "sievemq.aio", "sievemq_broker", "sievemq_testing", "sievemq_spark")
FOLDER = "reference/python"

#: A class with fewer public methods shares a page.
_METHODS = 3
#: More exceptions than these get a page of their own.
_EXCEPTIONS = 8


class UndocumentedError(Exception):
    """Public names without a docstring; the text lists them."""


def names_of(package: str) -> dict[str, object]:
    """The public names of a package: those of its `__all__`."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}


def identifier(package: str, name: str) -> str:
    """The path of a public name in the sources. The package's own, unless a module has the name as well."""
    module = f"{package}.{name}"
    return f"{module}.{name}" if names_of(package)[name].__module__ == module else module


def shared() -> dict[str, str]:
    """Names of `sievemq.aio` that are the same objects in `sievemq`, and are described there."""
    blocking = names_of("sievemq")
    return {name: f"sievemq.{name}" for name, it in names_of("sievemq.aio").items() if blocking.get(name) is it}


def methods_of(it: object) -> dict[str, object]:
    """The public methods and properties that a class has from SieveMQ."""
    if not inspect.isclass(it):
        return {}
    found = {name: value for name, value in inspect.getmembers(it) if not name.startswith("_")}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isroutine(value) or isinstance(value, property))
        and (getattr(getattr(value, "fget", value), "__module__", None) or "").startswith("sievemq")
    }


def undocumented() -> list[str]:
    """Public classes, functions and methods without a docstring."""
    missing = []
    for package in PACKAGES:
        for name, it in names_of(package).items():
            if not it.__doc__:
                missing.append(f"{package}.{name}")
            missing += [f"{package}.{name}.{key}" for key, value in methods_of(it).items() if not inspect.getdoc(value)]
    return missing


def pages() -> tuple[dict[str, str], Entry]:
    """The pages and their place in the navigation.

    Returns:
        Path in the tree -> Markdown, and the entry of the navigation.

    Raises:
        UndocumentedError: a public name has no docstring.
    """
    if missing := undocumented():
        raise UndocumentedError(f"public and without a docstring: {', '.join(missing)}")
    written: dict[str, str] = {}
    top = Entry("Python API", f"{FOLDER}/index.md")
    lines = ["# Python API\n", "Every public class and function, from its docstring.\n"]
    for package in PACKAGES:
        entry = _package(package, written)
        top.below.append(entry)
        lines.append(f"- [`{package}`]({package}/index.md): {_first_sentence(package)}")
    written[f"{FOLDER}/index.md"] = "\n".join(lines) + "\n"
    return written, top


def _package(package: str, written: dict[str, str]) -> Entry:
    names = names_of(package)
    elsewhere = shared() if package == "sievemq.aio" else {}
    own = {name: it for name, it in names.items() if name not in elsewhere}
    errors = {name: it for name, it in own.items() if inspect.isclass(it) and issubclass(it, Exception)}
    if len(errors) <= _EXCEPTIONS:
        errors = {}
    large = {n: it for n, it in own.items() if n not in errors and len(methods_of(it)) >= _METHODS}
    small = [name for name in own if name not in errors and name not in large]
    index = f"{FOLDER}/{package}/index.md"
    entry = Entry(package, index)
    text = [f"# `{package}`\n", _module(package), "| name | purpose |\n| --- | --- |"]
    for name, it in names.items():
        text.append(row(f"[`{name}`][{elsewhere.get(name) or identifier(package, name)}]", _first_sentence(it)))
    text.append("")
    text += [_directive(package, name) for name in small]
    for name in large:
        page = f"{FOLDER}/{package}/{name}.md"
        entry.below.append(Entry(name, page))
        written[page] = f"---\ntitle: {name}\n---\n\n{_directive(package, name, level=1)}"
    if errors:
        page = f"{FOLDER}/{package}/exceptions.md"
        entry.below.append(Entry("Exceptions and warnings", page))
        written[page] = "# Exceptions and warnings\n\n" + "\n".join(_directive(package, name) for name in errors)
    written[index] = "\n".join(text)
    return entry


def _module(package: str) -> str:
    """The docstring of a package, without its members."""
    options = ("members: false", "show_root_heading: false", "show_root_toc_entry: false")
    return f"::: {package}\n    options:\n" + "".join(f"      {option}\n" for option in options)


def _directive(package: str, name: str, level: int = 2) -> str:
    return f"::: {identifier(package, name)}\n    options:\n      heading_level: {level}\n"


def _first_sentence(it: object) -> str:
    if isinstance(it, str):
        it = importlib.import_module(it)
    text = (inspect.getdoc(it) or "").partition("\n\n")[0].replace("\n", " ")
    return cell(roles(text.partition(". ")[0].rstrip(".:")))


def described(written: Mapping[str, str]) -> set[str]:
    """The names that some page describes, with their package."""
    found = {name for text in written.values() for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    return found - set(PACKAGES)
