"""Builds the documentation site: `make site`, or `python -m website.build`.

The documents, and pages generated from the code, are staged in build/site-source; Zensical renders them to build/site.
A dead link, a page that is missing in the navigation, a public name without a docstring, and anything that would be
loaded from the network fail the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from website import checks, commands, http_api, navigation, python_api, settings, staging
from website.markup import tables
from website.navigation import ROOT, Entry
from website.python_api import UndocumentedError

BUILD = ROOT / "build"
PAGES = Path(__file__).with_name("pages")
ICON = ROOT / "broker/sievemq_broker/server/http/console/icon.svg"

#: The section of docs/README.md to which the generated pages are added.
_REFERENCE = "Reference"


def main() -> int:
    """Build and check; returns the exit code."""
    try:
        names = prepare()
    except (FileNotFoundError, UndocumentedError) as error:
        report(f"site: {error}")
        return 1
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", "zensical.toml"]
    done = subprocess.run([*command, "--strict"], cwd=BUILD, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})  # noqa: S603
    wrong = list(checks.problems(BUILD / "site", names))
    for problem in wrong:
        report(f"site: {problem}")
    pages = sum(1 for _ in (BUILD / "site").rglob("*.html"))
    report(f"site: {pages} pages, {len(names)} public names, {len(wrong)} problems: build/site/index.html")
    return int(bool(wrong or done.returncode))


def prepare() -> set[str]:
    """Stage the documents, the generated pages and the configuration.

    Returns:
        The public names that the pages describe.
    """
    target = BUILD / "site-source"
    shutil.rmtree(BUILD / "site", ignore_errors=True)
    staging.stage(target)
    written, entry = python_api.pages()
    written |= {commands.PAGE: commands.page(), settings.PAGE: settings.page(), **http_api.pages()}
    for page, text in written.items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(tables(text) if page.endswith(".md") else text, "utf-8")
    shutil.copytree(PAGES, target, dirs_exist_ok=True)
    shutil.copyfile(ICON, target / "favicon.svg")
    template = Path(__file__).with_name("zensical.toml").read_text("utf-8")
    assert "nav = []\n" in template
    whole = ", ".join(each.as_toml() for each in complete(entry))
    (BUILD / "zensical.toml").write_text(template.replace("nav = []\n", f"nav = [{whole}]\n"), "utf-8")
    return python_api.described(written)


def complete(python: Entry) -> list[Entry]:
    """The navigation with the first page and the generated ones."""
    sections = navigation.sections()
    (reference,) = (section for section in sections if section.title == _REFERENCE)
    reference.below[:0] = [
        python,
        Entry("Commands and options", commands.PAGE),
        Entry("Settings", settings.PAGE),
        Entry("HTTP API", http_api.PAGE),
    ]
    return [Entry("Home", "index.md"), *sections]


def report(line: str) -> None:
    """Print a line at once, between those of Zensical."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
