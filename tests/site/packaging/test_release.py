"""The version, its notes, and the workflows that make a release."""

from __future__ import annotations

import re
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import interpreters, notes
from release.build import Builder, differences, sums
from release.install import PROMISES

from sievemq import ConnectionFactory
from sievemq_broker import EmbeddedBroker
from sievemq_core.version import VERSION

ROOT = Path(__file__).parents[3]
WORKFLOWS = {path.name: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
CHANGELOG = """# Changelog

## [Unreleased]

- Two.

## [0.1.0] - 2026-01-02

### Broker

- One.

## [0.0.9] - 2026-01-01
"""


# -- the version ------------------------------------------------------------------------------------------------------


def test_files_that_cannot_read_the_version_have_the_same() -> None:
    for name, pattern in notes.COPIES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        found = {match[0].removeprefix(match[1]) for match in pattern.finditer(text)}
        assert found == {VERSION}, name


def test_clients_and_brokers_tell_each_other_the_version() -> None:
    with EmbeddedBroker() as broker, ConnectionFactory(broker.url).create_context() as context:
        metadata = context.get_meta_data()
        assert metadata.broker == f"SieveMQ/{VERSION}"
        assert metadata.get_provider_version() == notes.version() == VERSION


# -- notes ------------------------------------------------------------------------------------------------------------


def test_the_notes_are_the_section_of_the_changelog() -> None:
    assert notes.notes(CHANGELOG, "0.1.0") == "### Broker\n\n- One.\n"
    assert notes.notes(CHANGELOG, notes.UNRELEASED) == "- Two.\n"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("0.0.9", r"the section \[0\.0\.9\] is empty"),
        ("2.0.0", r"no section \[2\.0\.0\], only Unreleased, 0\.1\.0, 0\.0\.9"),
    ],
)
def test_a_section_without_notes_is_refused(name: str, wrong: str) -> None:
    with pytest.raises(notes.NotesError, match=wrong):
        notes.notes(CHANGELOG, name)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("CHANGELOG.md", "core/sievemq_core/version.py", *notes.COPIES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    for name in notes.PROVISIONAL.keys() - {"CHANGELOG.md"}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pip install sievemq\n")
    return tmp_path


def test_a_new_version_takes_what_is_unreleased(tree: Path) -> None:
    notes.begin(tree, "0.2.0rc1", "2026-03-04")
    assert notes.version(tree) == "0.2.0rc1"
    changelog = (tree / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [0.2.0rc1] - 2026-03-04\n\n- Two.\n\n## [0.1.0]" in changelog
    assert notes.notes(changelog, "0.2.0rc1") == "- Two.\n"
    for name, pattern in notes.COPIES.items():
        assert {match[0] for match in pattern.finditer((tree / name).read_text())} == {
            f"{match[1]}0.2.0rc1" for match in pattern.finditer((ROOT / name).read_text())
        }
    with pytest.raises(notes.NotesError, match=r"\[Unreleased\] is empty"):
        notes.begin(tree, "0.3.0", "2026-03-05")


@pytest.mark.parametrize(
    ("name", "wrong"), [("1.0", "not a version"), ("v1.0.0", "not a version"), ("0.1.0", "already")]
)
def test_a_version_that_is_none_or_was_released_is_refused(tree: Path, name: str, wrong: str) -> None:
    before = (tree / "CHANGELOG.md").read_text()
    with pytest.raises(notes.NotesError, match=wrong):
        notes.begin(tree, name, "2026-03-04")
    assert (notes.version(tree), (tree / "CHANGELOG.md").read_text()) == (VERSION, before)


@pytest.mark.parametrize("name", sorted(notes.PROVISIONAL))
def test_words_that_nothing_is_released_are_refused(tree: Path, name: str) -> None:
    words = notes.PROVISIONAL[name]
    if notes.CHANGELOG.read_text(encoding="utf-8").count("\n## [") == 1:  # nothing has been released
        assert words in (ROOT / name).read_text(encoding="utf-8")
    (tree / name).write_text(f"{(tree / name).read_text()}\n{words}.\n")
    with pytest.raises(notes.NotesError, match=f"{re.escape(name)} says '{words}'"):
        notes.begin(tree, "0.2.0", "2026-03-04")
    assert notes.version(tree) == VERSION


def test_files_that_differ_or_are_missing_are_named(tmp_path: Path) -> None:
    for folder, files in {"one": {"a.x": "1", "b.x": "2", "c.x": "3"}, "two": {"a.x": "1", "b.x": "4"}}.items():
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    assert differences(tmp_path / "one", tmp_path / "two") == ["b.x", "c.x"]
    assert [line.split()[1] for line in sums(tmp_path / "one").splitlines()] == ["a.x", "b.x", "c.x"]


def test_the_compiled_wheels_of_two_builds_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(builder: Builder, kind: str, source: Path, out: Path, python: str, environment: dict[str, str]) -> None:
        out.mkdir(parents=True)
        (out / f"for-{out.name}.whl").write_text(python)

    monkeypatch.setattr(Builder, "_build", make)
    pythons = {"3.12": Path("/one"), "3.13": Path("/two")}
    made = [Builder(0).compiled(tmp_path, tmp_path / folder, pythons) for folder in ("first", "again")]
    assert made[0] == [tmp_path / "first" / "for-3.12.whl", tmp_path / "first" / "for-3.13.whl"]
    assert differences(tmp_path / "first", tmp_path / "again") == []


# -- workflows --------------------------------------------------------------------------------------------------------


def workflow(name: str) -> dict[str, Any]:
    found = yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def test_actions_are_pinned_to_one_commit_each_beside_its_version() -> None:
    used = {line for path in WORKFLOWS.values() for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))}
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert len({line.partition("@")[0] for line in used}) == len(used)


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_what_a_workflow_runs_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = "\n".join(step["run"] for step in steps(name) if "run" in step)
    targets = set(re.findall(r"\bmake ([a-z-]+)", commands))
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)] == []
    scripts = set(re.findall(r"(?:^|\s)(\.ci/\w+|\w+/\w+\.py)", commands))
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_jobs_end_and_may_only_read(name: str) -> None:
    found = workflow(name)
    assert found["permissions"] == {"contents": "read"}
    jobs = found["jobs"]
    assert [key for key, job in jobs.items() if "timeout-minutes" not in job] == []
    publishing = {"release.yml": ["publish"], "site.yml": ["deploy"]}
    assert [key for key, job in jobs.items() if "permissions" in job] == publishing.get(name, [])
    assert all(jobs[key]["if"] == "github.ref_type == 'tag'" for key in publishing.get(name, []))


def test_the_wheel_on_other_systems_has_to_load_what_its_extras_promise() -> None:
    commands = [step["run"].split() for step in workflow("ci.yml")["jobs"]["systems"]["steps"] if "run" in step]
    installed, tried = commands
    assert installed[-1] == '".[broker,test]"'
    promise = PROMISES["broker"]
    named = [(option, name) for option, name in pairwise(tried) if option.startswith("--")]
    assert {name for option, name in named if option == "--but"} == {*promise.but}
    assert {name for option, name in named if option == "--whole"} == {"sievemq_core", "sievemq_broker"}


def test_wheels_of_other_systems_are_built_with_a_uv_at_hand() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["cibuildwheel"]["build-frontend"] == "build[uv]"
    (building,) = (step for step in steps("release.yml") if step.get("uses", "").startswith("pypa/cibuildwheel@"))
    assert building["with"]["extras"] == "uv"


def test_only_a_tag_is_published_after_all_was_checked() -> None:
    publish = workflow("release.yml")["jobs"]["publish"]
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["needs"] == ["check", "wheels"]
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}
    assert not any("password" in step.get("with", {}) for step in steps("release.yml"))


def test_every_supported_python_is_tested_and_gets_a_wheel() -> None:
    jobs = workflow("ci.yml")["jobs"]
    tested = [jobs["test"]["steps"][1]["with"]["python-version"], *jobs["pythons"]["strategy"]["matrix"]["python"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = [f"{name[2]}.{name[3:-2]}" for name in project["tool"]["cibuildwheel"]["build"]]
    assert tuple(tested) == tuple(built) == interpreters.SUPPORTED
    assert project["project"]["requires-python"] == f">={interpreters.SUPPORTED[0]}"
    named = [name.rsplit(" ", 1)[1] for name in project["project"]["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert tuple(named) == interpreters.SUPPORTED
