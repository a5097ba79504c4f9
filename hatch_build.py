"""The compiled build: ``SIEVEMQ_COMPILE=1 pip wheel .`` makes the hot modules into C on the way (docs/decisions/0025).

Without that variable, and in an editable install, this does nothing. pyproject.toml says which modules are compiled;
their sources are in the wheel as well. Nothing is written into the tree. SIEVEMQ_COMPILE_LEVEL is the C compiler's
level, 3 unless said: tests are content with 0, which takes a third of the time.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# `make lint` checks the types, with all dependencies at hand. Here libraries are unknown, whether they are installed or
# not: what is compiled shall not depend on that. Of modules that are not compiled only the types are wanted.
MYPY = (
    *("--config-file", "pyproject.toml", "--no-site-packages", "--follow-imports", "silent"),
    *("--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-decorators"),
    *("--no-warn-unused-ignores", "--no-warn-return-any"),
)


def wanted() -> bool:
    """Whether the environment asks for the compiled build."""
    return os.environ.get("SIEVEMQ_COMPILE", "0") not in ("", "0")


class CompileHook(BuildHookInterface[Any]):
    """Compiles the modules that pyproject.toml names and puts them into the wheel beside their sources."""

    def dependencies(self) -> list[str]:
        """What has to be there to compile; nothing otherwise."""
        return list(self.config["needs"]) if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling is about to make a wheel.

        Args:
            version: "editable" where the sources are used in place.
            build_data: hatchling's description of the wheel.

        Raises:
            RuntimeError: it cannot be compiled; the text says why.
        """
        if version == "editable" or not wanted():
            return
        if sys.implementation.name != "cpython":
            raise RuntimeError("SIEVEMQ_COMPILE: mypyc compiles for CPython only; leave the variable out elsewhere.")
        sources = [f"{folder}/{name}.py" for folder, names in self.config["compiled"].items() for name in names]
        if missing := [source for source in sources if not Path(self.root, source).is_file()]:
            raise RuntimeError(f"SIEVEMQ_COMPILE: pyproject.toml names what is not there: {', '.join(missing)}")
        self._folder = tempfile.TemporaryDirectory(prefix="sievemq-")
        made = Path(self._folder.name, "made")
        os.chdir(self.root)  # from where mypy knows the modules' names
        compile_to(made, sources)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for library in made.rglob("*"):
            if library.is_file():
                build_data["force_include"][str(library)] = library.relative_to(made).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is made."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def compile_to(folder: Path, sources: list[str]) -> None:
    """Make libraries of modules, in folders by the names that they are imported by.

    Raises:
        RuntimeError: mypyc refuses them, or there is no C compiler, or it failed; what they said stands above.
    """
    import setuptools  # first, so that mypyc makes extensions for it
    from mypyc import build as mypyc
    from setuptools.command.build_ext import build_ext

    scratch = folder.with_name("scratch")
    try:
        extensions = mypyc.mypycify(
            [*MYPY, "--cache-dir", str(scratch / "cache"), *sources],
            opt_level=os.environ.get("SIEVEMQ_COMPILE_LEVEL", "3"),
            debug_level="0",
            group_name="sievemq",
            target_dir=str(scratch),
        )
    except SystemExit as error:
        raise RuntimeError(f"SIEVEMQ_COMPILE: mypyc refuses the sources, see above (exit code {error.code}).") from None
    if os.name == "posix":
        # Generated C has no reader. gcc also looks for warnings that -w hides; for this one it takes four times as long
        # as to compile.
        options = ["-w", "-Wno-misleading-indentation", "-g0"]
        # The same bytes, whatever the folders are called of the C sources, of mypyc's and of Python's headers.
        folders = scratch, Path(mypyc.__file__).parent, sysconfig.get_path("include")
        options += [f"-ffile-prefix-map={each}=." for each in folders]
        for extension in extensions:  # which share one list
            extension.extra_compile_args = [*extension.extra_compile_args, *options]

    class Build(build_ext):  # type: ignore[misc]  # setuptools has no types
        """Links without the folder of this machine's Python, which a Python of pyenv asks for and no module needs."""

        def build_extensions(self) -> None:
            linker = getattr(self.compiler, "linker_so", [])
            linker[:] = [word for word in linker if not word.startswith("-Wl,-rpath")]
            super().build_extensions()

    command = Build(setuptools.Distribution({"name": "sievemq", "ext_modules": extensions}))
    command.build_lib = str(folder)
    command.build_temp = str(scratch / "objects")
    command.parallel = os.cpu_count() or 1
    command.ensure_finalized()
    try:
        command.run()
    except Exception as error:  # of several kinds, in places that change with setuptools
        raise RuntimeError(
            f"SIEVEMQ_COMPILE: the C compiler failed: {error}\n"
            "It takes gcc or clang and Python's headers (on Debian gcc and libc6-dev, and for Debian's own Python "
            "python3-dev). Without SIEVEMQ_COMPILE the wheel is plain Python: the same, only slower."
        ) from error
