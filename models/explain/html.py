"""A page of drawings in one file that asks for nothing: its policy forbids every address, and its one script, which
tells what lies under the pointer or the arrow keys, is named by its hash. Light, dark, and on paper."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

from models.explain.svg import to_page_svg
from models.explain.vega_panels import DARK, LIGHT, Panel

SCRIPT = """
const tip = document.getElementById("tip");
function tell(hit, all) {
  for (const other of all) other.classList.toggle("on", other === hit);
  tip.textContent = hit ? hit.dataset.says : "";
  tip.hidden = !hit;
  if (!hit) return;
  const box = hit.getBoundingClientRect(), wide = tip.offsetWidth, tall = tip.offsetHeight;
  const left = Math.min(Math.max(8, box.x + box.width / 2 - wide / 2), innerWidth - wide - 8);
  tip.style.left = left + scrollX + "px";
  tip.style.top = (box.y > tall + 12 ? box.y - tall - 8 : box.bottom + 8) + scrollY + "px";
}
for (const figure of document.querySelectorAll("figure")) {
  const all = [...figure.querySelectorAll("path[aria-label]")];
  for (const hit of all) {
    hit.dataset.says = hit.getAttribute("aria-label");
    hit.addEventListener("pointerenter", () => tell(hit, all));
    hit.addEventListener("pointerleave", () => tell(null, all));
  }
  let at = -1;
  figure.tabIndex = 0;
  figure.addEventListener("blur", () => { at = -1; tell(null, all); });
  figure.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") tell(null, all);
    if (!step || event.target !== figure) return;
    event.preventDefault();
    at = Math.min(Math.max(at + step, 0), all.length - 1);
    tell(all[at], all);
  });
}
"""

STYLE = """
:root {{ color-scheme: light dark; {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
@media print {{ :root {{ color-scheme: light; {light} }} }}
body {{ font: 15px/1.5 {font}; color: var(--ink); background: var(--paper); margin: 1.5rem auto; max-width: 1130px;
  padding: 0 1rem }}
h1 {{ font-size: 1.45rem; margin: 0 }} h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem }}
p {{ max-width: 50rem; margin: .5rem 0 }} .quiet {{ color: var(--quiet) }}
a {{ color: var(--first) }}
main > div {{ display: grid; gap: 1.2rem 1.6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 342px), 1fr)) }}
figure {{ margin: 0; padding: .3rem; border-radius: 6px; break-inside: avoid; min-width: 0 }}
figure:focus-visible {{ outline: 2px solid var(--first) }}
svg {{ max-width: 100%; height: auto; display: block }}
path[aria-label] {{ pointer-events: all }} .on {{ fill-opacity: .12 }}
table {{ border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: right; padding: .15rem 0 .15rem 1.1rem; border-bottom: 1px solid var(--faint) }}
th {{ color: var(--quiet); font-weight: normal }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0 }}
summary {{ color: var(--quiet); cursor: pointer; font-size: .85rem }}
details > div {{ overflow: auto; max-height: 22rem }}
#tip {{ position: absolute; top: 0; left: 0; max-width: 24rem; background: var(--ink); color: var(--paper);
  font-size: .85rem; padding: .3rem .6rem; border-radius: 4px; pointer-events: none; white-space: pre-line }}
.key span {{ display: inline-block; width: 1.6rem; height: .7rem; margin: 0 .4rem 0 1rem; vertical-align: baseline }}
.key span:first-child {{ margin-left: 0 }}
@media print {{ details, #tip, .screen {{ display: none }} body {{ max-width: none; margin: 0 }} }}
"""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<main>
<h1>{title}</h1>
{body}
</main>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</html>
"""
KEYS = (
    '<p class="quiet screen">Point at a curve or bar for its numbers, or focus it with Tab and use the arrow keys.</p>'
)


def page(title: str, body: str) -> str:
    """Write a page. `body`: HTML, already escaped."""
    digest = b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    light, dark = (" ".join(f"--{name}: {value};" for name, value in palette.items()) for palette in (LIGHT, DARK))
    return PAGE.format(
        title=escape(title),
        style=STYLE.format(light=light, dark=dark, font="system-ui, sans-serif"),
        body=body,
        script=SCRIPT,
        hash=f"sha256-{digest}",
    )


def panels_page(title: str, notes: Sequence[str], panels: Iterable[Panel], below: str) -> str:
    """Write a page of drawings, with what they show above them; `below`: HTML, already escaped."""
    words = [paragraph(note, "quiet") for note in notes]
    return page(title, "\n".join([*words, KEYS, grid(map(figure, panels)), below]))


def figure(panel: Panel, mark: str = "", below: str = "") -> str:
    """Return a drawing that can be pointed at and reached with the keyboard; `mark`: its name for links."""
    name = f' id="{escape(mark)}"' if mark else ""
    return f'<figure{name} aria-label="{escape(panel.name)}">{to_page_svg(panel)}{below}</figure>'


def grid(figures: Iterable[str]) -> str:
    """Lay figures out in as many columns as there is room for."""
    return f"<div>{''.join(figures)}</div>"


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of text, which is escaped; `kind`: its class."""
    return f'<p class="{kind}">{escape(words)}</p>' if kind else f"<p>{escape(words)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], links: Sequence[str] = ()) -> str:
    """Write a table. `links`: for each row the mark of the figure that its first cell leads to."""
    lines = [_row("td", row, links[at] if links else "") for at, row in enumerate(rows)]
    return f"<table><thead>{_row('th', head)}</thead><tbody>{''.join(lines)}</tbody></table>"


def _row(tag: str, cells: Sequence[str], link: str = "") -> str:
    first, *rest = (escape(cell) for cell in cells)
    first = f'<a href="#{escape(link)}">{first}</a>' if link else first
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in (first, *rest))}</tr>"


def foldable(label: str, content: str) -> str:
    """Fold content, HTML already, that opens when its label is chosen."""
    return f"<details><summary>{escape(label)}</summary><div>{content}</div></details>"
