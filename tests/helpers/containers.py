"""The image, built by Debian's buildah and run as a container engine would: namespaces of its own for mounts and
processes, a root file system that cannot be written, no capability, no new privilege, the image's own user.

No registry can be asked for a base: one is made of the files of the Debian packages that are installed here, Python's
among them, which takes two seconds where debootstrap takes two minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil
from small_home import ROOT

BASE = (
    "base-files base-passwd bash ca-certificates coreutils dash debianutils findutils grep libc-bin libstdc++6 passwd "
    "python3 python3-venv sed tar"
)
USELESS = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")
MERGED = ["/usr", *(f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib64")), "/bin", "/sbin", "/lib", "/lib64"]
DEPENDS = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]

# $1: the image's root; then pairs of a folder and where it is mounted, "--", user:group, and the command.
ENTER = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev" "$root/tmp"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done; shift
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
user=$1; shift
exec setpriv --no-new-privs --bounding-set -all,+sys_chroot,+setuid,+setgid chroot --userspec="$user" "$root" "$@"
"""


def run(*command: str, **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command[:6]}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def base_files() -> list[str]:
    """Every file of the packages that a small Debian with Python is made of, folders first."""
    listed = run("apt-cache", "depends", "--recurse", "--installed", *DEPENDS, *BASE.split()).splitlines()
    names = sorted({line for line in listed if line[:1] not in ("", " ", "|", "<")})
    wanted = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${binary:Package}\n", *names], capture_output=True, text=True
    ).stdout
    packages = [line[3:].strip() for line in wanted.splitlines() if line.startswith("ii")]
    files = set(run("dpkg-query", "-L", *packages).splitlines())
    kept = (file for file in files if file.startswith("/") and file != "/." and not file.startswith(USELESS))
    return [*MERGED, *sorted(file for file in kept if os.path.lexists(file))]


@dataclass
class Images:
    """Buildah's store in a folder of its own."""

    folder: Path

    @cached_property
    def program(self) -> list[str]:
        """buildah, its store by overlay, or, where this kernel cannot lay one over the folder, by copies."""
        for driver in ("overlay", "vfs"):
            program = ["buildah", "--root", f"{self.folder}/{driver}", "--runroot", f"{self.folder}/{driver}-run"]
            program += ["--storage-driver", driver]
            with contextlib.suppress(AssertionError):
                run(*program, "mount", run(*program, "from", "scratch").strip())
                return program
        raise AssertionError("buildah makes no container here")

    def buildah(self, *arguments: str, **more) -> str:
        return run(*self.program, *arguments, **more).strip()

    def base(self) -> None:
        container = self.buildah("from", "scratch")
        root = Path(self.buildah("mount", container))
        files = "\n".join(file[1:] for file in base_files())
        archive = self.folder / "base.tar"
        run("tar", "-cf", str(archive), "--no-recursion", "-C", "/", "-T", "-", input=files)
        run("tar", "-xf", str(archive), "-C", str(root))
        archive.unlink()
        (root / "tmp").mkdir(exist_ok=True)
        (root / "tmp").chmod(0o1777)
        for name in ("passwd", "group"):
            shutil.copy(f"/usr/share/base-passwd/{name}.master", root / "etc" / name)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # which an engine gives every container
        self.buildah("run", "--isolation", "chroot", container, "--", "ldconfig")
        self.buildah("commit", "-q", container, "localhost/base")
        self.buildah("rm", container)

    def build(self, wheels: Path) -> None:
        """The image as the Containerfile says. pip finds its files in a folder instead of a registry; that is mounted,
        and leaves nothing in the image.
        """
        config = self.folder / "pip.conf"
        config.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        mounts = ("-v", f"{config}:/etc/pip.conf:ro", "-v", f"{wheels}:/wheels:ro")
        how = ("--format", "docker", "--isolation", "chroot", "--build-arg", "BASE=localhost/base", *mounts)
        self.buildah("build", *how, "-f", "deploy/Containerfile", "-t", "dpserve", ".", cwd=ROOT)

    @cached_property
    def root(self) -> Path:
        """The image's root; one for all containers, for none can write to it."""
        return Path(self.buildah("mount", self.buildah("from", "localhost/dpserve")))

    def remove(self) -> None:
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")

    def config(self) -> dict:
        """What the image tells an engine."""
        found = json.loads(self.buildah("inspect", "--type", "image", "localhost/dpserve"))
        return found["Docker"]["config"] | {"History": json.dumps(found["History"])}


def wheels(folder: Path) -> Path:
    """What requirements/image.txt and build.txt name, as the files that this machine's pip takes."""
    python = folder / "python"
    run("/usr/bin/python3", "-m", "venv", str(python))
    download = [
        str(python / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-qq",
        "--no-deps",
    ]
    for lock in ("image", "build"):  # of some packages each has a version of its own
        run(*download, "--require-hashes", "-r", f"requirements/{lock}.txt", "-d", str(folder / "wheels"), cwd=ROOT)
    return folder / "wheels"


@dataclass
class Container:
    """One container: its root, the folders mounted into it, its user."""

    root: Path
    config: dict
    volumes: dict[Path, str]
    user: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def _command(self, *command: str) -> list[str]:
        pairs = [part for source, place in self.volumes.items() for part in (str(source), place)]
        settings = [*self.config["Env"], *(f"{name}={value}" for name, value in self.more.items())]
        inside = ["/usr/bin/env", "-i", *settings, *command]
        new = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]
        return [*new, str(self.root), *pairs, "--", self.user or self.config["User"], *inside]

    def run(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self._command(*command), capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done

    def dpserve(self, *arguments: str, code: int = 0) -> dict:
        """A command of the image, by its entry point."""
        out = self.run(*self.config["Entrypoint"], *arguments, "--json", code=code).stdout
        return json.loads(out) if out.strip() else {}

    @contextlib.contextmanager
    def started(self, log: Path):
        """The image's own command, until it is told to stop as an engine does: SIGTERM to its first process."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._command(*self.config["Entrypoint"], *self.config["Cmd"]), stdout=out, stderr=out
            )
        try:
            yield process
        finally:
            for first in psutil.Process(process.pid).children() if process.poll() is None else ():
                first.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def timed(what: str, since: float) -> float:
    """Say what took how long; the time now."""
    now = time.monotonic()
    print(f"{what}: {now - since:.1f} s", file=sys.stderr)
    return now
