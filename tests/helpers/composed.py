"""Services of a compose file as processes of this machine: what is started are the file's own words, with its volumes
at folders of a test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
INTERPOLATED = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


class Composed:
    """`files`: each says more of what the ones before have. `places`: the local folder of each source of a volume, by
    its name in the file; `given`: what `.env` says; `changed`: settings that this machine has otherwise; `moved`:
    addresses and ports that it has otherwise.
    """

    def __init__(
        self, files: Sequence[Path], places: Mapping[str, Path], given: Mapping[str, str], changed: Mapping[str, str],
        moved: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.services: dict[str, dict[str, Any]] = {}
        for file in files:
            for name, said in yaml.safe_load(file.read_text())["services"].items():
                before = self.services.get(name, {})
                settings = {**before.get("environment", {}), **said.get("environment", {})}
                volumes = [*before.get("volumes", ()), *said.get("volumes", ())]
                self.services[name] = {**before, **said, "environment": settings, "volumes": volumes}
        self._places, self._given, self._changed, self._moved = places, given, changed, moved or {}

    def start(self, name: str, log: Path) -> subprocess.Popen[bytes]:
        """One service, in a session of its own."""
        words, settings = self.command(name)
        with log.open("wb") as out:
            return subprocess.Popen(
                words, env={**os.environ, **settings}, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """What it runs, and its environment: the image's entry point is `dpserve`."""
        service = self.services[name]
        words = [*service.get("entrypoint", ["dpserve"]), *service["command"]]
        settings = {key: str(value) for key, value in service["environment"].items()}
        mounts = sorted((text.split(":")[:2] for text in service["volumes"]), key=lambda pair: -len(pair[1]))

        def local(text: str) -> str:
            text = INTERPOLATED.sub(lambda found: self._given.get(found[1], found[3] or ""), text)
            for old, new in self._moved.items():
                text = new if text == old else text.replace(f"//{old}", f"//{new}")
            for source, inside in mounts:
                if text == inside or text.startswith(f"{inside}/"):
                    return str(self._places[source]) + text.removeprefix(inside)
            return text

        programs = {"dpserve": ["-m", "serving.cli"], "dask": ["-m", "dask"], "python3": []}
        first, *rest = map(local, words)
        return [sys.executable, *programs[first], *rest], {
            **{key: local(text) for key, text in settings.items()},
            **self._changed,
        }
