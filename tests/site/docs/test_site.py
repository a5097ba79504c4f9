"""The documentation site in short: the navigation has every document, the generated pages every public name, command,
setting and path of the API; links lead somewhere. `make site` builds it and checks what was built."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from website import build, checks, commands, http_api, markup, navigation, python_api, settings, staging

from sievemq.url import options_as_rows
from sievemq_broker.config import Settings
from sievemq_broker.domain.policy import DestinationPolicy, NamespacePolicy
from sievemq_broker.server.http.api import PREFIX
from sievemq_broker.server.http.api.assemble import endpoints

ROOT = navigation.ROOT


@pytest.fixture(scope="module")
def api() -> dict[str, str]:
    return python_api.pages()[0]


def test_the_navigation_has_every_document() -> None:
    """A new page takes one line in docs/README.md, or in the README of its folder."""
    listed = {page for section in navigation.sections() for page in section.pages()}
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"docs/README.md"}
    assert sorted(written - listed) == [], "name them in docs/README.md"
    assert [page for page in listed if not (ROOT / page).exists()] == []


def test_a_folder_with_a_readme_is_a_section_and_a_numbered_row_has_its_title() -> None:
    entries = {entry.title: entry for section in navigation.sections() for entry in section.below}
    assert "docs/coming-from/pika.md" in list(entries["Another broker or library"].pages())
    assert entries["Decisions"].below[1].title == "0002 Commands are tuples, checked by expressions made from the table"
    assert entries["Decisions"].as_toml().startswith('{ "Decisions" = ["docs/decisions/README.md", { "0001 ')


def test_the_generated_pages_are_in_the_navigation(api: dict[str, str]) -> None:
    listed = [page for section in build.complete(python_api.pages()[1]) for page in section.pages()]
    assert len(listed) == len(set(listed))
    assert {*api, commands.PAGE, settings.PAGE, http_api.PAGE, "index.md"} <= set(listed)


@pytest.mark.parametrize("package", python_api.PACKAGES)
def test_every_public_name_is_described(api: dict[str, str], package: str) -> None:
    names = importlib.import_module(package).__all__
    here = {python_api.identifier(package, name) for name in names}
    elsewhere = python_api.shared() if package == "sievemq.aio" else {}
    described = python_api.described(api)
    assert here - described == {f"{package}.{name}" for name in elsewhere}
    assert set(elsewhere.values()) <= described
    index = api[f"{python_api.FOLDER}/{package}/index.md"]
    assert [name for name in names if f"| [`{name}`][" not in index] == []


def test_a_function_is_described_though_a_module_has_its_name(api: dict[str, str]) -> None:
    assert "\n::: sievemq_spark.drain.drain\n" in api[f"{python_api.FOLDER}/sievemq_spark/index.md"]


def test_a_public_name_without_a_docstring_fails_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        def method(self) -> None: ...

    Bare.method.__module__ = "sievemq"
    monkeypatch.setattr(python_api, "names_of", lambda package: {"Bare": Bare} if package == "sievemq" else {})
    with pytest.raises(python_api.UndocumentedError, match=r"sievemq\.Bare, sievemq\.Bare\.method$"):
        python_api.pages()


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = commands.page()
    assert [
        point.name for point in entry_points(group="sievemq.commands") if f"\n## `sievemq {point.name}`\n" not in page
    ] == []
    assert "\n### `sievemq queue ls`\n" in page
    for setting in fields(Settings):
        if setting.name not in ("attention", "users", "destinations", "namespaces"):
            assert f"`--{setting.name.replace('_', '-')}`" in page, setting.name


def test_the_page_of_settings_has_every_setting_rule_and_option() -> None:
    page = settings.page()
    assert [each.name for each in fields(Settings) if f"| `{each.name}` |" not in page] == []
    for kind in (DestinationPolicy, NamespacePolicy):
        assert [each.name for each in fields(kind) if each.init and f"| `{each.name}` |" not in page] == []
    assert [each["name"] for each in options_as_rows() if f"| `{each['name']}` |" not in page] == []


def test_the_page_of_the_http_api_has_every_endpoint() -> None:
    page = http_api.pages()[http_api.PAGE]
    assert [each.name for each in endpoints(True) if f"\n{each.method} {PREFIX}{each.path}\n" not in page] == []


def test_every_link_of_the_staged_documents_leads_to_a_page(tmp_path: Path) -> None:
    pages = staging.stage(tmp_path / "site")
    assert {"readme.md", "docs/client.md", "SECURITY.md", "examples/traced.py.md"} <= pages
    for page in pages:
        path = tmp_path / "site" / page
        text = re.sub(r"^ *```.*?^ *```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not re.match(r"\w+:", link):
                assert (path.parent / link).is_file(), (page, link)
    assert 'python title="worker.py"' in (tmp_path / "site/docs/tutorial.md").read_text("utf-8")


def test_a_dead_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("[there](missing.md)")
    monkeypatch.setattr(staging, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"docs/a\.md links to .*missing\.md, which is not there"):
        staging.stage(tmp_path / "site")


def test_the_check_of_the_built_site_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<h1 id="sievemq.Queue">Queue</h1>')
    (tmp_path / "style.css").write_text("@import 'https://fonts.example.com/x'; a { background: url(data:x) }")
    (tmp_path / "index.html").write_text(
        '<link rel="canonical" href="https://example.com"><script src="//cdn.example.com/x.js"></script>'
        '<img src="missing.png"><img src="data:image/png;base64,"><a href="there.html#sievemq.Queue">good</a>'
        '<a href="https://example.com">good</a><a href="there.html#none">bad</a><a href="gone.html">bad</a>'
        '<a href="javascript:x()">bad</a><a href="#none">bad</a><autoref identifier="sievemq.Nobody">x</autoref>'
    )
    assert sorted(checks.problems(tmp_path, ["sievemq.Queue", "sievemq.Topic"])) == [
        "index.html links to #none",
        "index.html links to gone.html",
        "index.html links to javascript:x()",
        "index.html links to there.html#none",
        "index.html loads //cdn.example.com/x.js from the network",
        "index.html loads missing.png, which is not there",
        'index.html names what is not described: <autoref identifier="sievemq.Nobody">',
        "sievemq.Topic is public and on no page",
        "style.css loads https://fonts.example.com/x from the network",
    ]


def test_docstrings_become_markdown() -> None:
    text = "A :class:`~sievemq.Queue`.\n\n>>> 1 + 1\n2\n\nMore :mod:`sievemq`."
    assert markup.markdown(text) == "A `sievemq.Queue`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore `sievemq`."
    assert markup.markdown("So::\n\n    x = 1\n\n::\n\n    y") == "So:\n\n    x = 1\n\n\n\n    y"
    together = (
        "Args:\n    user, password: of both,\n        in two lines.\n    other: one.\n\nReturns:\n    a, b: pair."
    )
    assert markup.markdown(together) == together.replace(
        "    user, password: of both,\n        in two lines.\n",
        "    user: of both,\n        in two lines.\n    password: of both,\n        in two lines.\n",
    )
    assert markup.tables("| `a \\| b` \\| c |\n`a \\| b`") == "| `a | b` \\| c |\n`a \\| b`"
    assert markup.plain_cell("a*b | `x_y`\n<z>") == r"a\*b \| `x_y` \<z>"
