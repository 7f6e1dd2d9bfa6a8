"""The documentation builds without a warning or the internet; its links lead somewhere; its commands are run."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
import pytest
import screenshots
import yaml
from pages import ROOT
from typer.main import get_command

from dpserve import Client
from dpserve.learners import CHECKS_OF_MANY, CHECKS_OF_NUMBERS
from serving.app import DOORS
from serving.cli.app import TREE, app
from serving.cli.backends.choice import Needs
from serving.cli.tree import Branch, Leaf
from serving.pages.all import PAGES as DASHBOARD
from training.learners import LEARNERS

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
ROOMS = ("accountant", "models", "training", "local", "dpserve_cluster", "dpserve_platform", "serving", "dpserve")
HOUSE = (*ROOMS, "dpserve_verify", "tests", "extensions")
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page can be linked at, where it links to, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "__top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADS and LOADS[tag] in found and found.get("rel") != "canonical":
            self.loads.append(found[LOADS[tag]])


def test_pictures_are_those_that_pages_show_and_the_script_makes():
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", *DOCS.rglob("*.md"))]
    shown = {name for text in texts for name in re.findall(r"img/([\w-]+)\.png", text)}
    assert shown == {path.stem for path in (DOCS / "img").glob("*.png")}
    assert shown == {name for name, *_ in screenshots.SHOTS}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = page_at(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if target in pages:
                if unquote(parts.fragment) not in pages[target].anchors:
                    broken.append((path.name, link, "no such heading"))
            elif not target.exists() and not is_source(path, site, parts.path):
                broken.append((path.name, link, "no such file"))
    assert broken == []


@cache
def page_at(place: str) -> Path:
    """A dozen thousand links lead to a hundred places."""
    target = Path(place)
    return target / "index.html" if target.is_dir() else target


def is_source(path: Path, site: Path, link: str) -> bool:
    """Pages also point at files of the project that are not part of the site."""
    return (DOCS / path.relative_to(site).parent / link).resolve().exists()


def test_nothing_is_loaded_from_elsewhere(site, pages):
    outside = [(path.name, load) for path, page in pages.items() for load in page.loads if urlsplit(load).netloc]
    assert outside == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", styles) == []


@pytest.mark.system("chromium")
@pytest.mark.parametrize("phone", [False, True])
def test_the_site_plays_the_recording_from_disk_and_asks_nobody(site, phone):
    """In a real browser: it shows the first step, goes on by itself, and ends with what openssl said."""
    home, asked, faults = (site / "index.html").as_uri(), list[str](), list[str]()
    with browser.chromium() as chromium:
        page = chromium.new_page(viewport=browser.PHONE if phone else browser.DESK)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(home)
        shown = page.locator("#recording .ap-term-text")
        browser.expect(shown).to_contain_text("signed by SHA256:")  # before it plays
        page.locator("#recording .ap-overlay-start").click()
        browser.expect(shown).not_to_contain_text("signed by SHA256:")
        browser.expect(shown).to_contain_text("== The steward registers Adult")
        page.keyboard.press("9")  # to the last tenth of it
        browser.expect(shown).to_contain_text("Signature Verified Successfully")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("a[href$='.cast']").count() == 1  # for who has no JavaScript
    assert faults == []
    assert any(url.endswith("asciinema-player.min.js") for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_player_is_what_was_published_and_on_no_page_without_a_recording(site, pages):
    folder, notice = DOCS / "player", (ROOT / "NOTICE").read_text("utf-8")
    pinned = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert pinned == {name: digest for name, digest in there.items() if name != "SHA256SUMS"}
    assert all(name in notice for name in pinned if name.endswith(".LICENSE"))
    assert sum((folder / name).stat().st_size for name in pinned) < 300_000
    playing = {path.relative_to(site).as_posix() for path, page in pages.items() if "player" in str(page.loads)}
    assert playing == {"index.html"}


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_in_the_navigation_and_what_they_show_is_run(page):
    assert f": {page}\n" in (ROOT / "mkdocs.yml").read_text("utf-8")
    if re.search(r"^```(sh|python)\n", (DOCS / page).read_text("utf-8"), re.M):
        named = (f'{before}{Path(page).name}"' for before in '"/')
        assert any(name in other_tests() for name in named), f"no test runs the commands of docs/{page}"


@cache
def other_tests() -> str:
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    return "\n".join(path.read_text("utf-8") for path in tests)


MAX_WORDS = 1500
WALKS = ("how-it-works.md", "extending.md")


def test_tests_and_files_that_pages_name_are_there():
    """Who reads a proof can run what would refute it; who follows a walk or a recipe finds each file."""
    files = {path.relative_to(ROOT).as_posix() for room in HOUSE for path in (ROOT / room).rglob("*")}
    names = {file.rpartition("/")[2] for file in files}
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    tests += "".join(path.read_text("utf-8") for path in (ROOT / "extensions").rglob("test_*.py"))
    missing = []
    readmes = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "extensions").glob("*/README.md"))
    for page in [*(f"docs/{name}" for name in PAGES), *readmes]:
        for word in re.findall(r"`([^`\n]+)`", (ROOT / page).read_text("utf-8")):
            cases = re.findall(r"\btest_[a-z0-9_]+\b(?![.…])", word)
            missing += [f"{page}: {case}" for case in cases if f"def {case}(" not in tests]
            file = word.partition("::")[0].rstrip("/")
            is_path = re.fullmatch(rf"({'|'.join(HOUSE)})/[\w./-]+", file) and "yours" not in file
            if (is_path and file not in files) or (re.fullmatch(r"[\w.-]+\.py", file) and file not in names):
                missing.append(f"{page}: {file}")
    assert missing == []


def test_names_of_code_that_walks_and_recipes_name_are_there():
    """Who is told to change a table or a class finds it."""
    files = [path for room in HOUSE for path in (ROOT / room).rglob("*.py")]
    files += [ROOT / "Makefile", ROOT / "serving/pages/static/verify_claim.js"]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text("utf-8"))}
    named = {page: re.findall(r"`([A-Z][A-Za-z_]{2,})`", (DOCS / page).read_text("utf-8")) for page in WALKS}
    assert all(named.values())
    assert [(page, name) for page, names in named.items() for name in names if name not in words] == []


def test_a_page_of_a_task_is_short():
    """Proofs, results and references may be longer: they lie in folders of their own."""
    pages = [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"), ROOT / "README.md"]
    lengths = {page.stem: len(page.read_text("utf-8").split()) for page in pages}
    assert {name: count for name, count in lengths.items() if count > MAX_WORDS} == {}


ROOT_COMMAND = get_command(app)


def options(command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_commands_on_pages_are_there_with_their_options(page):
    text = (DOCS / page).read_text("utf-8").replace("\\\n", " ")
    fenced = "".join(re.findall(r"^ *```\w+\n(.*?)^ *```", text, re.M | re.S))
    lines = re.findall(r"^(?:\w+=\S+ +)*dpserve ([a-z-]+[^\n#|>;&]*)", fenced, re.M)
    for line in lines + re.findall(r"`dpserve ([a-z-]+(?: [^`]*)?)`", text):
        command, words = ROOT_COMMAND, line.split()
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        assert command is not ROOT_COMMAND or words[0].startswith("--"), line
        assert not (words and hasattr(command, "commands") and words[0].isalpha()), line
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options(command), line


def test_measured_pages_are_few_and_short_and_say_of_which_version():
    (measured,) = (
        entry["Measured"] for entry in yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"] if "Measured" in entry
    )
    texts = [(DOCS / page).read_text("utf-8") for entry in measured for page in entry.values()]
    assert len(texts) <= 7
    assert [text[:60] for text in texts if len(text.split()) > 2500] == []
    assert [
        text[:60] for text in texts if not re.search(r"at\s(commit )?[0-9a-f]{7} \(2026-|2026-11-21 to", text)
    ] == []


PAGES_MADE = ("commands", "rest", "learners", "python", "settings", "access")
OF_PROCESSES = {
    "DPSERVE_STOPPING",
    "DPSERVE_WORKER_PARENT",
    "DPSERVE_PRICES",
    "DPSERVE_CERTIFICATE_END",
}  # that we start: nobody sets these


SHOWN_ALONE = {  # pages with commands that no test runs as they stand there, and what runs the like
    "access.md": "a picture",
    "audit.md": "an audit elsewhere: tests/serving/cli/test_cli.py audits exports and tiles",
    "reference/certificate.md": "a package that is not published; tests/test_packaging.py installs it",
    "deployment.md": "buildah, docker and kubectl: make image-test, make lint-deploy, tests/deploy/test_overlays.py",
    "development.md": "make, of which this is a part",
    "reference/explanations.md": "a model of six classes: tests/models/edit/test_edit_classes.py; a door: "
    "tests/serving/rest/test_explain_rest.py",
    "reference/institutions.md": "an installation, as make federated-test has it; tests/local/federated runs the rest",
    "how-it-works.md": "a map",
    "monitoring.md": "a port below 1024; tests/serving/process have TLS and the token",
    "nothing-is-sent.md": "a tracer: tests/test_nothing_is_sent.py runs it",
    "reference/home.md": "SoftHSM: tests/accountant/keys/test_signers.py runs it; a PostgreSQL of one's own: "
    "tests/accountant/store",
    "reference/clients.md": "a picture",
    "reference/sources.md": "stores, databases and hosts of one's own: tests/training/rows/test_duck.py, make "
    "stores-test, tests/training/rows/test_cluster.py",
    "reference/serving.md": "a bento: tests/serving/test_service.py builds one; another runtime: "
    "tests/models/onnx/test_portable.py",
    "reference/others.md": "packages of others: tests/dpserve_platform/outside/test_vouched.py runs a program",
    "reference/ledger.md": "witnesses of others: tests/accountant/log/test_witness.py",
}


def test_every_block_says_what_it_is_and_what_is_not_run_is_known():
    languages = {
        page: re.findall(r"^ *```(.*)\n(?:.*\n)*? *```$", (DOCS / page).read_text("utf-8"), re.M) for page in PAGES
    }
    assert {page for page, found in languages.items() if "" in found} == set()
    assert {page for page, found in languages.items() if "text" in found} == set(SHOWN_ALONE)
    assert all((ROOT / path).exists() for says in SHOWN_ALONE.values() for path in re.findall(r"tests/[\w/.]+\w", says))


def test_nothing_tells_to_install_a_name_of_ours_from_an_index():
    """No public index holds them: who takes such a name there would run on every machine of who believes a page."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [ROOT / name for name in files if name.endswith((".md", ".py", ".html", ".toml", ".js", ".yaml", ".yml"))]
    told = re.compile(r"pip3? install +(?:-[-\w]+ +)*['\"]?dpserve[\w-]*(?![\w*.-]*\.whl)")
    assert told.search("pip install 'dpserve[x]'")
    assert told.search("pip install -U dpserve-verify")
    assert not told.search('pip install "dpserve-VERSION-py3-none-any.whl[client]"')
    assert not told.search("pip install ./dpserve_verify-*.whl")
    found = [str(path.relative_to(ROOT)) for path in texts if told.search(path.read_text("utf-8"))]
    assert found == ["tests/docs/test_docs.py"]


def test_the_page_from_afar_names_what_a_server_can_be_asked():
    def asks(node: Leaf) -> bool:
        return node.needs == Needs.EITHER

    groups = {
        f"`{name}`": [leaf for leaf, node in group.leaves.items() if asks(node)]
        for name, group in TREE.items()
        if isinstance(group, Branch)
    }
    alone = [name for name, node in TREE.items() if isinstance(node, Leaf) and asks(node)]
    rows = re.findall(r"^\| (`\w+`|) ?\| (`.*`) \|$", (DOCS / "reference/clients.md").read_text("utf-8"), re.M)
    shown = {group: set(re.findall(r"`([\w-]+)`", names)) for group, names in rows if "DPSERVE" not in group}
    wanted = {group: set(names) for group, names in {"": alone, **groups}.items() if names}
    assert shown == wanted


def test_the_reference_speaks_of_everything(site):
    text = {name: (site / "reference" / f"{name}.html").read_text("utf-8") for name in PAGES_MADE}
    for name, command in ROOT_COMMAND.commands.items():
        below = [f"{name} {leaf}" for leaf in getattr(command, "commands", ())]
        assert all(f">dpserve {words}<" in text["commands"] for words in below or [name])
    assert all(door.path in text["rest"] for door in DOORS if not getattr(door, "hidden", False))
    asked = [door for door in (*DOORS, *DASHBOARD) if door.scopes]
    assert text["access"].count("<tr>") == len(asked) + 1
    assert all(f"<code>{door.method} {door.path}</code>" in text["access"] for door in asked)
    assert ">the learner; auto: by a public rule<" in text["rest"]  # of a field that may be left out
    assert all(f'id="{name}"' in text["learners"] for name in LEARNERS)
    methods = [name for name in dir(Client) if not name.startswith("_")]
    assert all(f'id="client{name}"' in text["python"] for name in methods)
    shown = ("fit", "predict", "score", "explain", "plot", "export")
    assert all(f'id="privateclassifier{name}"' in text["python"] for name in shown)
    assert all(f"<code>{name}</code>" in text["python"] for name in {*CHECKS_OF_MANY, *CHECKS_OF_NUMBERS})
    assert re.findall(r" at 0x|&#39;str|'str'|\(self", text["python"]) == []
    assert "\\|" not in text["learners"]
    code = "".join(path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    variables = set(re.findall(r"\bDPSERVE_[A-Z_]*[A-Z]\b", code)) - OF_PROCESSES
    assert {name for name in variables if f">{name}<" not in text["settings"]} == set()
    assert re.findall(r"[^~]/\.local/share", text["settings"]) == []  # nothing of the machine that made it


def test_docstrings_of_doors_name_arguments_that_there_are():
    spec = spec_from_file_location("reference", DOCS / "reference.py")
    reference = module_from_spec(spec)
    spec.loader.exec_module(reference)
    checked = 0
    for door in reference.CODE:
        members = [door, *(getattr(door, name) for name in reference.members(door) if not name.startswith("_"))]
        for member in filter(callable, members):
            _, *sections = reference.SECTION.split(inspect.getdoc(member) or "")
            for head, body in zip(sections[::2], sections[1::2], strict=True):
                named = {name for name, _ in reference.entries(body)}
                assert named, (member, head)
                if head == "Args":
                    assert named <= inspect.signature(member).parameters.keys() - {"self"}, member
                    checked += 1
    assert checked >= 5
