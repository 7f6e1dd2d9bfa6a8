"""Where the engine that answers about rows is: this process, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from accountant.home import settings
from accountant.system import extensions
from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from training.rows.partitions.threads import Engine
    from training.rows.tables.partition_source import Source

NAMED = {"dask": "tcp", "tls": "tls"}
Check: TypeAlias = "Callable[[Source, Callable[[str], Iterable[bytes]]], None]"


class ClusterEngine(Protocol):
    """What an extension brings that asks rows on other hosts."""

    def check_engine(self, address: str, files: Sequence[Path]) -> None:
        """Check the cluster before a job is charged. EngineUnavailable unless it is there, and all of its workers that
        answer see these files, and have the dpserve that is here.
        """

    def open_cluster(
        self, address: str, sources: Sequence[Source], schema: Path, bounds: Sequence[int], check: Check
    ) -> Engine:
        """Return the rows of these sources, asked of a cluster. `schema`: their file; `bounds`: more rows than that
        none has. `check` raises where a source's files are not those that were registered.
        """


def engine_address() -> str | None:
    """Return where DPSERVE_ENGINE says that a cluster is, as Dask writes it; None where this process is the engine.
    InputError where it says neither.
    """
    address = settings()["DPSERVE_ENGINE"].value
    if address == "local":
        return None
    try:
        url = urlsplit(address)
        if url.scheme in NAMED and url.hostname and url.port and url.netloc.count("@") + len(url.path) == 0:
            return f"{NAMED[url.scheme]}://{url.netloc}"
    except ValueError:
        pass
    raise InputError(f"DPSERVE_ENGINE={address[:80]}: must be local, dask://HOST:PORT, or tls://HOST:PORT")


def cluster() -> ClusterEngine:
    """Return what asks a cluster. InputError where the extension that does is not installed."""
    return cast(ClusterEngine, extensions.brought("engines", "cluster"))


def check_engine(files: Sequence[Path]) -> None:
    """Check the engine before a job is charged, where it is not this process: as `ClusterEngine` says."""
    address = engine_address()
    if address is not None:
        cluster().check_engine(address, files)
