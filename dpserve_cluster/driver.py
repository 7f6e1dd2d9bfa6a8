"""The driver's side of a cluster: which one is in force, its manifest, and its rows as an engine's.

Noise is drawn by nobody here: a session does, once, after the sum.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from accountant.errors import EngineLost, EngineUnavailable
from dpserve_cluster.desk import Desk
from dpserve_cluster.pieces import PARTS, Piece, check_manifest
from dpserve_cluster.workers import CONNECT_SECONDS, LOOK_SECONDS, PATIENCE_SECONDS, Workers, connect
from dpserve_verify.errors import InputError
from models.features.features import Feature
from training.rows.engine import Check
from training.rows.partitions import threads
from training.rows.partitions.partition import Integers, Partition, Question
from training.rows.tables.partition_source import Digests, Source


def check_engine(address: str, files: Sequence[Path]) -> None:
    """Check the cluster before a job is charged. EngineUnavailable unless it is there, and all of its workers that
    answer see these files, and have the dpserve that is here.
    """
    client = connect(address)
    try:
        client.sync(Workers(client, _sizes(files)).found)
    finally:
        client.close(CONNECT_SECONDS)


def open_cluster(address: str, sources: Sequence[Source], schema: Path, bounds: Sequence[int], check: Check) -> Cluster:
    """Return the rows of these sources, asked of a cluster. `schema`: their file; `bounds`: more rows than that none
    has. `check` raises where a source's files are not those that were registered, and reads each of them once, by the
    reader that it is given: what is hashed then is what the manifest names.
    """
    files = [source.folder / name for source in sources for name in source.files]
    try:
        client = connect(address)
    except EngineUnavailable as error:
        raise EngineLost(f"engine: {error.message}") from None
    try:
        workers, since = Workers(client, _sizes([*files, schema])), time.monotonic()
        while not workers.threads:  # it is charged: what comes back soon is waited for
            try:
                client.sync(workers.found)
            except EngineUnavailable as error:
                if time.monotonic() - since > PATIENCE_SECONDS:
                    raise EngineLost(f"engine: {error.message}") from None
                time.sleep(LOOK_SECONDS)
        pieces = manifest(sources, schema, bounds, sum(workers.threads.values()), check)
        return Cluster(Desk(client, workers, pieces), sources[0].partition(0, 0, sources[0].folder))
    except BaseException:
        client.close(CONNECT_SECONDS)
        raise


def manifest(
    sources: Sequence[Source], schema: Path, bounds: Sequence[int], threads_there: int, check: Check
) -> tuple[Piece, ...]:
    """Return the rows of these sources cut into pieces, whose number follows from what is public alone."""
    fewest = [-(-bound // threads.PARTITION) for bound in bounds]
    times = -(-threads_there // sum(fewest))  # a piece at least for everybody who could answer
    pieces = []
    for source, few in zip(sources, fewest, strict=True):
        rows, parts = source.size, few * times
        cuts = list(pairwise(rows * at // (parts * PARTS) for at in range(parts * PARTS + 1)))
        digests = Digests(source, cuts)
        check(source, digests)
        done = [(high - low, digest) for (low, high), digest in zip(cuts, digests.done(), strict=True)]
        for at in range(parts):
            piece_cuts = cuts[at * PARTS : (at + 1) * PARTS]
            name = f"piece {at + 1} of {parts} of block {source.folder.name}"
            (low, _), (_, high) = piece_cuts[0], piece_cuts[-1]
            same = schema, source.schema.digest, source.target, source.part, source.by, source.fine
            digested = (*done[at * PARTS : (at + 1) * PARTS],)
            piece = Piece(
                name, source.folder, low, high, rows, digested, *same,
                begins=source.begins, features=source.features, firsts=source.firsts,
            )  # fmt: skip
            pieces.append(piece)
    check_manifest(pieces)
    return tuple(pieces)


def _sizes(files: Iterable[Path]) -> dict[str, int]:
    return {os.fspath(file.absolute()): file.stat().st_size for file in files}


class Cluster:
    """Partitions that lie on other hosts. `shape`: none of their rows, in their bins."""

    def __init__(self, desk: Desk, shape: Partition, run: int = 0) -> None:
        self._desk, self._shape, self._run = desk, shape, run
        self.widths, self.classes, self.outputs = shape.widths, shape.classes, shape.outputs
        self.is_weighed = False  # rows with weights are asked here

    @property
    def size(self) -> int:
        """Count the rows on all hosts. Private under add/remove."""
        return self._desk.size

    @property
    def parts(self) -> Sequence[Partition]:
        """Raise InputError: the partitions lie on other hosts."""
        raise InputError("rows: lie on the hosts of a cluster, which answer questions alone")

    def ask(self, question: Question) -> Integers:
        """Return the sum of what every partition answers. JobFailed where one cannot be had."""
        return self._desk.ask(self._run, question)

    def check_binned(self, features: tuple[Feature, ...]) -> None:
        """Raise InputError where the rows do not stand in the bins of these features."""
        self._shape.check_binned(features)

    def fresh(self) -> Cluster:
        """Return the same rows, with nothing derived from them or from released values."""
        return Cluster(self._desk, self._shape, next(self._desk.runs))

    def close(self) -> None:
        """Leave the cluster."""
        self._desk.close()
