"""Has every process that is started with `environment(file)` note a byte for each release, before it is drawn."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = '''
import os, sys
from importlib.machinery import PathFinder


class Noting:
    """Finds training.session.session as it is found, and has its releases noted."""

    def find_spec(self, name, path=None, target=None):
        if name != "training.session.session":
            return None
        found = PathFinder.find_spec(name, path, target)
        run = found.loader.exec_module

        def exec_module(module):
            run(module)
            release = module.Session.release

            def noted(self, query, mechanism):
                file = os.open(os.environ["NOTED_DRAWS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(file, b".")
                os.close(file)
                return release(self, query, mechanism)

            module.Session.release = noted

        found.loader.exec_module = exec_module
        return found


sys.meta_path.insert(0, Noting())
'''


def environment(folder: Path) -> dict[str, str]:
    """For `serving(...)`."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    return {"NOTED_DRAWS": str(folder / "draws"), "PYTHONPATH": f"{ROOT}:{folder / 'site'}"}


def drawn(folder: Path) -> int:
    """How many releases were begun."""
    file = folder / "draws"
    return file.stat().st_size if file.exists() else 0
