"""Models on disk: a bundle is one folder that travels, a store is a root folder of named, numbered bundles."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from accountant.errors import NameTaken, NothingServed, UnknownName
from dpserve_verify.certificates.bundle import FILES, Bundle
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.system.files import PRIVATE, PUBLIC, replace_file, sync_directory, write_new
from models.store.standing import way_out

CHAMPION = "champion"
RETIRED = ".retired"  # an empty file beside the version's folder
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
VERSION = re.compile(r"[1-9][0-9]{0,8}")


def write_bundle(directory: Path, bundle: Bundle) -> None:
    """Make `directory` with the bundle's files, whole or not at all, also when the power fails. Raises NameTaken where
    something stands there already."""
    write_folder(directory, files_of(bundle))


def write_folder(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make `directory` with these files, by their paths in it, as `write_bundle` does."""
    with _staged(directory.parent, files) as staged:
        _publish(staged, directory)


def files_of(bundle: Bundle) -> dict[str, bytes]:
    """Return the files of a bundle by their names. ModelInvalid where one is larger than any reader takes."""
    files = {name: getattr(bundle, field) for name, (field, _) in FILES.items()}
    for name, content in files.items():
        if len(content) > FILES[name][1]:
            raise ModelInvalid(f"{name}: {len(content)} bytes; at most {FILES[name][1]}")
    return files


def check_reference(reference: str) -> None:
    """Raise InputError unless it is `adult`, `adult@champion` or `adult@2`."""
    name, at, version = reference.partition("@")
    if not NAME.fullmatch(name):
        raise InputError(f"model={name[:80]!r}: must match {NAME.pattern}")
    if at and version != CHAMPION and not VERSION.fullmatch(version):
        raise InputError(f"version={version[:80]!r}: must be a whole number from 1, or {CHAMPION}")


def check_numbered(reference: str) -> None:
    """Raise InputError unless it is `adult@2`."""
    check_reference(reference)
    name, _, version = reference.partition("@")
    if version in ("", CHAMPION):
        raise InputError(f"model={reference}: say which version, for instance {name}@2")


class ModelStore:
    """root/<name>/<version>/ holds a bundle; versions count 1, 2, ...; root/<name>/champion holds a version's number,
    and until one was promoted is not there; root/<name>/<version>.retired says that this one is not served.

    Any number of processes may add and read. A folder named by a version is whole; all else is passed over. After each
    change the root's time is set anew, so that one look at it tells whether any name has to be looked at.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str, bundle: Bundle) -> int:
        """Store as the next version, which answers nobody who does not name it. Returns the version."""
        home = self._home(name)
        home.mkdir(parents=True, exist_ok=True)
        sync_directory(self.root)
        with _staged(home, files_of(bundle)) as staged:
            version = self._number(home, staged)
        os.utime(self.root)
        return version

    def promote(self, name: str, version: int) -> None:
        """Point `name@champion` at a version that exists, in one step."""
        home = self._version(name, str(version)).parent
        replace_file(home / CHAMPION, f"{version}\n".encode("ascii"), PRIVATE)
        os.utime(self.root)

    def retire(self, name: str, version: int) -> None:
        """Keep a version that exists, and serve it no more."""
        home = self._version(name, str(version)).parent
        (home / f"{version}{RETIRED}").touch()
        sync_directory(home)
        os.utime(self.root)

    def restore(self, name: str, version: int) -> None:
        """Reverse `retire`."""
        home = self._version(name, str(version)).parent
        (home / f"{version}{RETIRED}").unlink(missing_ok=True)
        sync_directory(home)
        os.utime(self.root)

    def retired(self, name: str) -> list[int]:
        """Return the versions that are kept and not served, ascending."""
        home = self._home(name)
        return [version for version in _versions(home) if (home / f"{version}{RETIRED}").exists()]

    def candidates(self) -> list[str]:
        """List the folders that may hold versions, sorted: cheaper than `names`, which looks into each."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as found:
            return sorted(each.name for each in found if NAME.fullmatch(each.name))

    def names(self) -> list[str]:
        """Return names that have a version, sorted."""
        return [name for name in self.candidates() if _versions(self.root / name)]

    def versions(self, name: str) -> list[int]:
        """Return the versions of a model, ascending; UnknownName when it has none."""
        versions = _versions(self._home(name))
        if not versions:
            raise UnknownName(f"model={name!r}: there is no such model", model=name)
        return versions

    def champion(self, name: str) -> int | None:
        """Return the version that `name` alone means; None while none was promoted."""
        self.versions(name)
        try:
            text = (self._home(name) / CHAMPION).read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ModelInvalid(f"{name}/{CHAMPION}: cannot be read ({error})") from error
        if not VERSION.fullmatch(text):
            raise ModelInvalid(f"{name}/{CHAMPION}={text[:20]!r}: must hold a version's number")
        return int(text)

    def resolve(self, reference: str) -> Path:
        """Find the folder of the bundle that `adult`, `adult@champion` or `adult@2` means; UnknownName when there is
        none.
        """
        check_reference(reference)
        name, at, version = reference.partition("@")
        if not at or version == CHAMPION:
            champion = self.champion(name)
            if champion is None:
                raise nothing_served(name, self.versions(name)[-1])
            version = str(champion)
        return self._version(name, version)

    def _home(self, name: str) -> Path:
        check_reference(name)
        return self.root / name

    def _version(self, name: str, version: str) -> Path:
        if int(version) not in self.versions(name):
            reference = f"{name}@{version}"
            raise UnknownName(f"model={reference!r}: there is no such version", model=reference)
        return self._home(name) / version

    def _number(self, home: Path, staged: Path) -> int:
        version = max(_versions(home), default=0) + 1
        while True:
            try:
                _publish(staged, home / str(version))
            except NameTaken:  # another process was faster
                version += 1
            else:
                return version


def nothing_served(name: str, newest: int) -> NothingServed:
    """Return the error that says that no version of a name was promoted. `newest`: the version to offer."""
    details = way_out(name, newest)
    return NothingServed(f"model={name}: nothing is served: no version was promoted; {details['command']}", **details)


def _versions(home: Path) -> list[int]:
    if not home.is_dir():
        return []
    folders = (path for path in home.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(int(path.name) for path in folders if VERSION.fullmatch(path.name))


@contextmanager
def _staged(parent: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write the files into a hidden folder beside its destination: on the same file system, so that a rename is one
    step.
    """
    staged = Path(tempfile.mkdtemp(prefix=".bundle-", dir=parent))
    try:
        staged.chmod(0o755)
        for name, content in files.items():
            (staged / name).parent.mkdir(exist_ok=True)
            write_new(staged / name, content, PUBLIC)
        sync_directory(staged)
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone by now if all went well


def _publish(staged: Path, directory: Path) -> None:
    if os.path.lexists(directory):
        raise NameTaken(f"{directory}: exists already")
    try:
        staged.rename(directory)
    except OSError as error:  # made by another process since: a folder that is not empty is never replaced
        if os.path.lexists(directory):
            raise NameTaken(f"{directory}: exists already") from error
        raise
    sync_directory(directory.parent)
