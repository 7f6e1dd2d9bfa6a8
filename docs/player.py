"""A page of the site plays the recording that it links to: a hook of MkDocs.

The text of the recording is put into the page, for a page that is read from disk may not fetch a file. On a server's
own `/docs` and in the sources the link is a link: only the site has docs/player/. That is asciinema-player 3.18.0 of
npm (its `dist/bundle`, unchanged), with its licence and that of the part which it holds. To renew it: copy both files,
write the version here, and `sha256sum *.js *.css *.LICENSE > SHA256SUMS`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

LINKING = re.compile(r'<p>(?:(?!</p>).)*?<a href="([^":]+\.cast)">.*?</p>', re.S)
# A pause is shown as four seconds at most, time to read a step; the picture before it plays is a certificate.
OPTIONS = {"fit": "width", "idleTimeLimit": 4, "poster": "npt:0:20", "controls": True}
PLAYER = """
<link rel="stylesheet" href="{folder}/asciinema-player.css">
<script src="{folder}/asciinema-player.min.js"></script>
<div id="recording" aria-label="Recording of a terminal"></div>
<script>AsciinemaPlayer.create({{data: {text}}}, document.getElementById("recording"), {options});</script>
"""


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with a player below the paragraph that links to a recording (`.cast`), if one does."""
    linking = LINKING.search(html)
    if linking is None:
        return html
    at = dirname(page.url)
    text = (Path(config.docs_dir) / normpath(join(at, linking[1]))).read_text("utf-8")
    shown = PLAYER.format(
        folder=relpath("player", at or "."),
        text=json.dumps(text).replace("<", "\\u003c"),  # so that no text ends the script
        options=json.dumps(OPTIONS),
    )
    return html[: linking.end()] + shown + html[linking.end() :]
