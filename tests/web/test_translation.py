"""Messages are ready for translation: no literal is left in a template, and a catalogue is made and used."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.template.loader import render_to_string
from django.test import override_settings
from django.utils import translation
from django.utils.translation import trans_real

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "templates").rglob("*.html")
    if not {"admin", "bundle", "api"} & set(path.relative_to(ROOT / "templates").parts)
)
UNSPOKEN = frozenset({"code", "kbd", "pre", "script", "style"})
SPOKEN_ATTRIBUTES = frozenset({"alt", "aria-label", "placeholder", "title"})
NAMES = frozenset({"FACET", "Facet", "GPUs", "Globus", "MiB", "SHA", "TOKEN", "UTC", "curl", "facet"})
"""Names and units, which no language changes."""


class Literals(HTMLParser):
    """Collects the words that a person would read or hear."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"input", "meta", "link", "br", "img", "path"}:
            self.inside.append(tag)
        for name, value in attrs:
            if name in SPOKEN_ATTRIBUTES:
                self._hear(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        if not UNSPOKEN & set(self.inside):
            self._hear(data)

    def _hear(self, text: str) -> None:
        self.found += [word for word in re.findall(r"[A-Za-z]{3,}", text) if word not in NAMES]


def literals(source: str) -> list[str]:
    """Return the words of a template that no `translate` holds."""
    source = re.sub(r"\{#.*?#\}", "", source, flags=re.DOTALL)
    source = re.sub(r"\{% block body_class %\}.*?\{% endblock", "{%", source)
    source = re.sub(r"\{% blocktranslate.*?endblocktranslate %\}", "", source, flags=re.DOTALL)
    source = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", source, flags=re.DOTALL)
    heard = Literals()
    heard.feed(source)
    return heard.found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_a_template_leaves_no_word_untranslated(path: Path) -> None:
    assert literals(path.read_text()) == []


def test_the_search_for_words_finds_them() -> None:
    source = '<p title="Hidden">{% translate "Said" %} loose {{ value }}</p><code>ignored</code>'

    assert literals(source) == ["Hidden", "loose"]


def _forget() -> None:
    """Let Django read the catalogues anew."""
    trans_real._translations = {}  # type: ignore[attr-defined]  # the stubs leave the cache out


def test_a_catalogue_is_made_and_a_page_speaks_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not (shutil.which("xgettext") and shutil.which("msgfmt")):
        pytest.skip("no xgettext and msgfmt on the PATH: install Debian's `gettext` to run this test")
    for name in ("templates", "web"):
        shutil.copytree(ROOT / {"web": "portal/web"}.get(name, name), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with override_settings(LOCALE_PATHS=[str(tmp_path / "locale")]):
        call_command("makemessages", locale=["eo"], extensions=["html", "py"], verbosity=0)
        made = tmp_path / "locale" / "eo" / "LC_MESSAGES" / "django.po"
        catalogue = made.read_text()
        made.write_text(
            catalogue.replace('msgid "Nothing here"\nmsgstr ""', 'msgid "Nothing here"\nmsgstr "Nenio"')
        )
        subprocess.run(["msgfmt", "-o", made.with_suffix(".mo"), made], check=True)
        _forget()
        with translation.override("eo"):
            page = render_to_string("404.html")
    _forget()

    assert catalogue.count("\nmsgid ") > 500
    assert '"Waiting in queue"' in catalogue
    assert "<h1>Nenio</h1>" in page


def test_only_languages_that_have_a_catalogue_are_offered() -> None:
    offered = {code for code, _name in settings.LANGUAGES}
    kept = {path.parents[1].name for path in (ROOT / "locale").glob("*/LC_MESSAGES/django.mo")}

    assert offered == {"en"} | kept
