"""Make a release and check it: ``make release``.

    python -m release.run                        a rehearsal, from the commit that is checked out
    python -m release.run --tag v0.1.0           for publication: refuses what does not fit that tag
    python -m release.run --level 0 --once       quickly: compiled without optimisation, not built a second time

dist/ then has what is published: the sdist, the pure wheel, SBOMs, notes and sums. dist/compiled/ has a compiled wheel
for each Python of this machine. Those that are published are made for more systems, by .github/workflows/release.yml.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from release import contents, interpreters, notes
from release.build import Builder, BuildError, commit, differences, export, has_changes, run, sums
from release.install import IMPORT_MS, PIP_SECONDS, PROMISES, Environment, requirement

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "release"
#: Checks the workflows, where there is a Go.
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
#: Their programs run from the wheel.
DOCUMENTS = ("tests/site/docs/test_readme.py", "tests/site/docs/test_tutorial.py")
#: By name, the extras of an SBOM: what an application installs, and what a broker does.
SBOMS = {"client": "", "broker": "broker"}


class ReleaseError(Exception):
    """The release is not to be published; the text says why."""


class Release:
    """A release in the making; its steps in order.

    Args:
        level: the C compiler's level for compiled wheels; None for none.
        pythons: those that it is built for and tried with, by version.
    """

    def __init__(self, level: int | None, pythons: Sequence[str]) -> None:
        self._out = ROOT / "dist"
        self._level = level
        self._pythons = {version: path for version, path in interpreters.found().items() if version in pythons}
        self._begun = time.monotonic()
        self._commit = commit(ROOT)  # of the beginning: another may be checked out meanwhile
        self._sdist = self._wheel = Path()
        self._compiled: list[Path] = []

    def say(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        print(f"{time.monotonic() - self._begun:6.0f} s  {text}", flush=True)

    def begin(self, tag: str | None) -> str:
        """The notes of the release.

        Raises:
            ReleaseError: there is a tag, and version, tree or changelog do not fit it.
        """
        version = notes.version()
        changelog = notes.CHANGELOG.read_text(encoding="utf-8")
        if tag is None:
            self.say(f"a rehearsal of {version}, from commit {self._commit.name}")
            if has_changes(ROOT):
                self.say("the tree has changes that are not committed: they are not in it")
            try:
                return notes.notes(changelog, version)
            except notes.NotesError:
                return notes.notes(changelog, notes.UNRELEASED)
        if tag != f"v{version}":
            raise ReleaseError(f"the tag is {tag}, and the version {version}: python -m release.notes --begin")
        if has_changes(ROOT):
            raise ReleaseError("the tree has changes that are not committed")
        self.say(f"release {version}, from commit {self._commit.name}")
        return notes.notes(changelog, version)

    def build(self, twice: bool) -> None:
        """Make the files, if wanted twice, from copies of the commit in different folders.

        Raises:
            ReleaseError: they differ.
        """
        shutil.rmtree(self._out, ignore_errors=True)
        shutil.rmtree(WORK, ignore_errors=True)
        self._sdist, self._wheel, self._compiled = self._build("first")
        self._check_copies(self._wheel, WORK / "first" / "from-tree")
        if twice:
            self._build("again")
            for folder in ("dist", "compiled"):
                self._check_copies(WORK / "first" / folder, WORK / "again" / folder)
            self.say("built again in another folder: the same bytes")
        (self._out / "compiled").mkdir(parents=True)
        self._sdist, self._wheel = (Path(shutil.copy(path, self._out)) for path in (self._sdist, self._wheel))
        self._compiled = [Path(shutil.copy(path, self._out / "compiled")) for path in self._compiled]

    def _build(self, name: str) -> tuple[Path, Path, list[Path]]:
        folder = WORK / name
        export(ROOT, self._commit.name, folder / "tree")
        builder = Builder(self._commit.epoch, self._level or 0)
        sdist = builder.sdist(folder / "tree", folder / "dist")
        wheel = builder.wheel(sdist, folder / "dist")
        self.say(f"{sdist.name}, and from it {wheel.name}")
        if name == "first":
            builder.wheel(folder / "tree", folder / "from-tree")
        compiled: list[Path] = []
        if self._level is not None:
            compiled = builder.compiled(sdist, folder / "compiled", self._pythons)
            self.say(f"compiled: {', '.join(path.name for path in compiled)}")
        return sdist, wheel, compiled

    def _check_copies(self, first: Path, second: Path) -> None:
        folder = first if first.is_dir() else first.parent
        differing = differences(folder, second)
        if first.is_file():
            differing = [name for name in differing if name == first.name]
        if differing:
            raise ReleaseError(f"not the same bytes in {folder} and {second}: {', '.join(differing)}")

    def check(self) -> None:
        """Check contents, metadata and the workflows that publish them.

        Raises:
            contents.ContentsError, BuildError: they are not as they have to be.
        """
        files = [self._sdist, self._wheel, *self._compiled]
        foreign = (str(WORK).encode(), str(Path.home()).encode() + b"/")
        for path in files:
            contents.check(path, foreign)
        twine = str(Path(sys.executable).with_name("twine"))
        run([twine, "check", "--strict", *map(str, files)])
        self.say("contents as they have to be; twine check --strict passes")
        self._check_workflows()

    def _check_workflows(self) -> None:
        workflows = [str(path) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
        zizmor = [str(Path(sys.executable).with_name("zizmor")), "--offline", "--no-progress", "--pedantic"]
        run([*zizmor, *workflows, str(ROOT / ".github" / "dependabot.yml")])
        self.say("zizmor finds nothing in the workflows")
        if go := shutil.which("go"):
            run([go, "run", ACTIONLINT, *workflows], ROOT)
            self.say("actionlint finds nothing in them")

    def install(self, extras: Sequence[str]) -> None:
        """Install into empty environments, each file and each extra with pip and with uv, and use it there.

        Raises:
            BuildError: a step fails.
            ReleaseError: installing or importing the base takes too long.
        """
        self._install_files()
        own = interpreters.own()
        best = next((path for path in self._compiled if f"-cp{own.replace('.', '')}-" in path.name), self._wheel)
        for extra in extras or ["", *contents.extras(self._wheel)]:
            promise = PROMISES[extra]
            for installer in ("pip", "uv"):
                place = Environment(self._place(), Path(sys.executable), installer)
                seconds, _ = place.install([requirement(best, extra)])
                said = place.smoke(promise, best in self._compiled)
                self.say(f"{installer} [{extra}] {seconds:.1f} s: {said}")
                if extra == "dev" and installer == "uv":
                    self.say(f"programs of README and tutorial: {place.documents(DOCUMENTS)}")
                if installer == "uv" and extra in SBOMS.values():
                    self._sbom(extra, place)
                shutil.rmtree(place.folder)

    def _install_files(self) -> None:
        """Each file where it fits, without extras; on the Python of this process with the times."""
        for version, python in self._pythons.items():
            tag = f"-cp{version.replace('.', '')}-"
            for path in (self._sdist, self._wheel, *(each for each in self._compiled if tag in each.name)):
                for installer in ("pip", "uv"):
                    place = Environment(self._place(), python, installer)
                    seconds, worked = place.install([str(path)])
                    said = place.smoke(PROMISES[""], path in self._compiled)
                    self.say(f"{installer} {path.name} {seconds:.1f} s: {said}")
                    if path == self._wheel and installer == "pip" and python == Path(sys.executable):
                        self._judge(place, seconds, worked)
                    shutil.rmtree(place.folder)

    def _judge(self, place: Environment, seconds: float, worked: float) -> None:
        imported = place.import_ms()
        self.say(
            f"pip install: {seconds:.1f} s, {worked:.1f} s of the processor (below {PIP_SECONDS}); "
            f"import sievemq: {imported:.0f} ms of the processor (below {IMPORT_MS:.0f})"
        )
        if worked > PIP_SECONDS or imported > IMPORT_MS:
            raise ReleaseError("installing or importing the base takes too long")

    def _sbom(self, extra: str, place: Environment) -> None:
        (name,) = (name for name, its in SBOMS.items() if its == extra)
        path = self._out / f"sievemq-{name}.cdx.json"
        write_sbom(path, place.program("python"), self._commit.epoch)
        self.say(f"SBOM: {path.name}")

    def _place(self) -> Path:
        return WORK / "environment"

    def finish(self, text: str) -> None:
        """Write the notes and the sums."""
        (self._out / "notes.md").write_text(text, encoding="utf-8")
        (self._out / "SHA256SUMS").write_text(sums(self._out), encoding="utf-8")
        self.say(f"{self._out.relative_to(ROOT)}: {', '.join(sorted(path.name for path in self._out.iterdir()))}")


def write_sbom(path: Path, python: str, epoch: int) -> None:
    """Write the bill of materials of an environment as CycloneDX, always the same for the same packages.

    Args:
        path: the JSON file.
        python: the environment's interpreter.
        epoch: its time, in seconds since 1970.
    """
    version = notes.version()
    project = WORK / "pyproject.toml"  # the tool reads no version from elsewhere
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project.write_text(text.replace('dynamic = ["version"]', f'version = "{version}"', 1), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", "--output-reproducible"]
    own = ["--pyproject", str(project), "--mc-type", "library", python]
    made = json.loads(run([*command, *own], None, {"SOURCE_DATE_EPOCH": str(epoch)}))
    made["metadata"]["component"]["purl"] = f"pkg:pypi/sievemq@{version}"
    path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make release", description="Make a release and check it.")
    parser.add_argument("--tag", help="the tag that it is for; without one it is a rehearsal")
    parser.add_argument("--level", type=int, default=3, help="the C compiler's level for compiled wheels (3)")
    parser.add_argument("--no-compiled", action="store_true", help="no compiled wheels")
    parser.add_argument("--once", action="store_true", help="do not build a second time to compare")
    parser.add_argument("--pythons", default=",".join(interpreters.SUPPORTED), help="versions, separated by commas")
    parser.add_argument("--extras", default="", help="only these, separated by commas; all by default")
    parser.add_argument("--no-install", action="store_true", help="do not install it")
    given = parser.parse_args()
    making = Release(None if given.no_compiled else given.level, given.pythons.split(","))
    making.say(interpreters.summary())
    try:
        text = making.begin(given.tag)
        making.build(not given.once)
        making.check()
        if not given.no_install:
            making.install([extra for extra in given.extras.split(",") if extra])
        making.finish(text)
    except (ReleaseError, BuildError, contents.ContentsError, notes.NotesError) as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
