"""Several hosts by Dask: the same bits as here for every learner, and what becomes of a job when somebody of a real
cluster is killed, stopped or starved, or a file is not what it was.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from dask_cluster import DaskCluster, certificate, until
from same_bits import CLASSES, KINDS, NUMBER, SCHEMA, learnt, table

from accountant.audit.audit import audit_home
from accountant.errors import EngineUnavailable, JobFailed, WrongState
from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.ledger.families.records import NewPeople
from dpserve_cluster import answering, desk, driver, pieces, workers
from dpserve_cluster.pieces import Piece, check_manifest
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import open_rows, register, require_rows
from training.datasets.drafts.registering import register_requested
from training.datasets.growing.append import append
from training.jobs import draw_journal, job
from training.planning.plans import plan, public_of
from training.requests import JobRequest
from training.requests.registration import RegistrationRequest
from training.rows.engine import engine_address
from training.rows.partitions import threads
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import schema_of
from training.rows.statistics.additive_rows import BinCounts
from training.rows.tables.partition_source import Source

TOTAL = Budget.of("50", "0.000001")
PERSON = {"person_epsilon": "3", "person_delta": "1e-6"}
NAMES = {CLASSES: "classes", NUMBER: "numbers"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with DaskCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """One dataset with classes, and one with a number to predict."""
    folder = tmp_path_factory.mktemp("rows")
    found = Home.init({"DPSERVE_HOME": str(folder / "home")})
    for answer, name in NAMES.items():
        pq.write_table(table(answer), folder / f"{name}.parquet")
        (folder / f"{name}.yaml").write_text(SCHEMA.replace("ANSWER", answer))
        files = folder / f"{name}.parquet", folder / f"{name}.yaml"
        first = name == NAMES[CLASSES]  # the same people have one budget
        about = TOTAL if first else None, Relation.ADD_REMOVE, "record", 1, () if first else (NAMES[CLASSES],)
        register(found, name, *files, *about)
    return found


@pytest.fixture
def engine(cluster, monkeypatch) -> DaskCluster:
    """The cluster is in force; two workers are there. A busy machine may take longer to connect than is given here."""
    monkeypatch.setenv("DPSERVE_ENGINE", cluster.address)
    monkeypatch.setattr(workers, "CONNECT_SECONDS", 120.0)
    until(lambda: ready(cluster) == 2, "two workers answer", cluster)
    return cluster


def clients() -> int:
    return sum(isinstance(each, workers.distributed.Client) for each in gc.get_objects())


def ready(cluster: DaskCluster) -> int:
    """How many workers answer."""
    try:
        client = workers.connect(engine_address())
    except EngineUnavailable:
        return 0
    try:
        there = workers.Workers(client, {})
        with suppress(EngineUnavailable):
            client.sync(there.found)
        return len(there.threads)
    finally:
        client.close()


def rows_of(home: Home, name: str, window: str | None = None) -> Rows:
    """As a started job would be given them."""
    dataset, schema = home.ledger.dataset(name, blocks=window), schema_of(home, home.ledger.dataset(name))
    request = plan(home, JobRequest(name, "ebm" if name == "numbers" else "lazybb", "0.5", blocks=window)).request
    return open_rows(home, Started(1, dataset, request, TOTAL.epsilon, None), schema)  # type: ignore[arg-type]


def bits(home: Home, kind: str, before=lambda number: None) -> tuple[str, str]:
    """What a learner comes to on rows as the setting says."""
    name = NAMES[KINDS[kind][1]]
    schema = schema_of(home, home.ledger.dataset(name))
    public = public_of(home.ledger.dataset(name), schema.question(schema.target_names[0]), Budget.of("3", "1e-6"))
    with closing(rows_of(home, name)) as rows:
        return learnt(kind, public, rows, before)


@pytest.fixture(scope="module")
def here(home) -> dict[str, tuple[str, str]]:
    """What every learner comes to in this process."""
    return {kind: bits(home, kind) for kind in KINDS}


@pytest.mark.server
def test_every_answer_and_the_model_are_the_same_bits_by_a_cluster(engine, home, here, monkeypatch):
    assert here == {kind: bits(home, kind) for kind in KINDS}
    monkeypatch.setattr(threads, "PARTITION", 1 << 23)  # eight pieces for two workers
    assert bits(home, "lazybb") == here["lazybb"]


@pytest.mark.server
def test_a_window_that_bounds_one_person_over_all_its_blocks_is_the_same_by_a_cluster(engine, tmp_path, monkeypatch):
    """Of each person the first two rows of the window, in whichever of its blocks they stand."""
    grown = Home.init({"DPSERVE_HOME": str(tmp_path / "home")})
    who = [[str(row % 10 + block * 4) for row in range(30)] for block in range(3)]  # most come again, some do not
    edges = ", ".join(f"{row}.5" for row in range(89))
    schema = f"row: {{type: numeric, edges: [{edges}]}}\nignore: [who]\n"
    (tmp_path / "schema.yaml").write_text(f"target: {{name: y, {CLASSES}}}\nrecords: 30\nfeatures:\n  {schema}")
    for block, people in enumerate(who):
        own = {"who": people, "row": [30.0 * block + row for row in range(30)], "y": ["no", "yes"] * 15}
        pq.write_table(pa.table(own), file := tmp_path / f"{block}.parquet")
        if block:
            append(grown, "visits", file, "steward", 30, new_rows=NewPeople("few people", "steward"))
        else:
            asked = RegistrationRequest("visits", "2", "1e-6", unit="who", contributions=2, **PERSON)
            register_requested(grown, asked, file, tmp_path / "schema.yaml", "steward")

    def read(window: str) -> list[int]:
        with closing(rows_of(grown, "visits", window)) as rows:
            return np.flatnonzero(rows.ask(BinCounts(0))).tolist()

    for first, last in ((1, 3), (2, 3), (3, 3)):
        all_rows = [(each, 30 * at + row) for at in range(first - 1, last) for row, each in enumerate(who[at])]
        places = {each: [row for one, row in all_rows if one == each][:2] for each, _ in all_rows}
        by_cluster = read(f"{first}-{last}")
        assert by_cluster == sorted(row for rows in places.values() for row in rows)
        with monkeypatch.context() as here:
            here.setenv("DPSERVE_ENGINE", "local")
            assert read(f"{first}-{last}") == by_cluster


@pytest.mark.server
def test_a_job_end_to_end(engine, home):
    """Certified, audited and measured as any other; one process plays it, another is told that it is taken."""
    told = job.train(home, JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 5}), by="test")
    assert told["state"] == "issued"
    held = job.submit(home, JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 30}), by="test")
    outcomes: list[type[Exception] | None] = []

    def run() -> None:
        for _ in range(5):
            try:
                job.run(home, held.seq)
                outcomes.append(None)
                return
            except EngineUnavailable:  # Dask gives its own thread ten seconds to start; nothing was begun
                continue
            except WrongState as error:
                outcomes.append(type(error))
                return

    drivers = [threading.Thread(target=run) for _ in range(2)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join()
    assert sorted(map(str, outcomes)) == [str(WrongState), "None"]
    assert audit_home(home).ok


@pytest.mark.server
def test_a_training_worker_of_the_server_asks_a_cluster(engine, home):
    """It is a fork of what has loaded the service, which gave all tornado a clock by which Dask waited for ever."""
    seq = job.submit(home, JobRequest("classes", "lazybb", "0.25", parameters={"rounds": 5}), by="test").seq
    played = f"""from serving import launch
launch.load()
from accountant.home import Home
from training.jobs import draw_journal, job
job.run(Home.open(), {seq})"""
    done = subprocess.run(
        [sys.executable, "-c", played], env=os.environ | {"DPSERVE_HOME": str(home.path), "PYTHONPATH": str(warm.ROOT)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert home.ledger.job(seq).issued is not None


@pytest.mark.server
def test_workers_that_are_killed_or_stopped_change_no_bit(engine, home, here, monkeypatch):
    """One is killed, and later one is stopped for as long as the job lasts: each is asked once more, and the sums are
    those that they were."""
    monkeypatch.setattr(workers, "SILENT_SECONDS", 2.0)
    stopped: list[psutil.Process] = []

    def hurt(number: int) -> None:
        if number == 2:
            os.kill(engine.workers()[0], signal.SIGKILL)
        if number == 5:
            until(lambda: ready(engine) == 2, "the nanny started another", engine)
            stopped.extend(map(psutil.Process, engine.workers()[:1]))
            stopped[0].suspend()

    try:
        assert bits(home, "lazybb", hurt) == here["lazybb"]
    finally:
        for process in stopped:
            process.resume()
    assert len(stopped) == 1


@pytest.mark.server
def test_what_a_lost_worker_had_is_shared_by_all_others_and_given_back(engine, home):
    """Of three workers one is killed: its piece is cut in two. The one that is started in its place is asked in vain
    first, and then has its share; the sums are those that they were."""
    with engine.one_more(), closing(rows_of(home, "classes")) as rows:
        own = rows._engine._desk  # type: ignore[attr-defined]
        counts = rows.ask(answering.CountRows())
        assert [piece.name.split(" of block")[0] for piece in own.pieces] == [f"piece {at} of 3" for at in (1, 2, 3)]
        os.kill(engine.workers()[0], signal.SIGKILL)
        until(lambda: len(own._workers.threads) == 2, "the driver hears of it", engine)
        assert rows.ask(answering.CountRows()) == counts
        names = [piece.name.split(" of block")[0] for piece in own.pieces]
        assert len(names) == 4
        assert {name.split(" of piece")[0] for name in names} >= {"parts 1 to 8", "parts 9 to 16"}
        assert len({*own._place.values()}) == 2
        until(lambda: len(own._workers.threads) == 3, "another was started, and met", engine)
        assert rows.ask(answering.CountRows()) == counts
        assert len({*own._place.values()}) == 3
        check_manifest(own.pieces)


@pytest.mark.server
def test_a_worker_out_of_memory_ends_the_job_with_the_piece_by_name(engine, home, monkeypatch):
    """A question that takes more than there is: the kernel, or a nanny, kills each worker that tries, and the job ends
    before all memory is tried again and again."""
    import killing

    monkeypatch.setattr(desk, "LOST", 1)
    with closing(rows_of(home, "classes")) as rows, pytest.raises(JobFailed, match=r"piece \d of 2 of block .*memory"):
        rows.ask(killing.Fatal())


@pytest.mark.server
def test_a_piece_that_changed_or_is_gone_is_refused_by_name(engine, home):
    """Before the charge where it is seen then; else by the worker that opens it, at any question."""
    dataset = home.ledger.dataset("numbers")
    file = home.datasets / dataset.registration.commitment / "labels.npy"
    whole = file.read_bytes()
    with closing(rows_of(home, "numbers")) as rows:
        counts = rows.ask(answering.CountRows())
        os.utime(file)  # touched, and the same: it is looked at once more
        assert rows.ask(answering.CountRows()) == counts
        with file.open("r+b") as opened:
            opened.seek(len(whole) - 1)
            opened.write(bytes([whole[-1] ^ 1]))
        with pytest.raises(JobFailed, match="piece 2 of 2 of block .*: its rows are not those of the manifest"):
            rows.ask(answering.CountRows())
        file.rename(file.with_name("away"))
        with pytest.raises(JobFailed, match="piece . of 2 of block .*: its files cannot be read here"):
            rows.ask(answering.CountRows())
        file.with_name("away").rename(file)
        file.write_bytes(whole)
        assert rows.ask(answering.CountRows()) == counts


@pytest.mark.server
def test_a_question_that_is_let_go_while_its_answers_come_harms_none_after_it(engine, home):
    """All pieces refuse at about the same time: the first ends the question while others are fetched."""
    import killing

    with closing(rows_of(home, "numbers")) as rows:
        counts = rows.ask(answering.CountRows())
        for _ in range(200):
            with pytest.raises(JobFailed, match="piece . of 2 of block .*: ArithmeticError"):
                rows.ask(killing.Unanswerable())
            assert rows.ask(answering.CountRows()) == counts


@pytest.mark.server
def test_what_a_job_needs_of_a_cluster_is_asked_before_it_is_charged(engine, home, monkeypatch, tmp_path):
    spent = home.ledger.dataset("classes").most_used.spent
    asked = JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 5})
    with monkeypatch.context() as patch:
        patch.setattr(answering, "fingerprint", lambda: "another")
        with pytest.raises(EngineUnavailable, match="runs another dpserve"):
            job.train(home, asked, by="test")
    for said in ("dask://127.0.0.1:1", "tls://127.0.0.1:1"):
        monkeypatch.setenv("DPSERVE_ENGINE", said)
        monkeypatch.setattr(workers, "CONNECT_SECONDS", 0.5)
        before = clients()
        with pytest.raises(EngineUnavailable, match="no scheduler can be asked there"):
            job.train(home, asked, by="test")
        assert clients() <= before, "one that failed is left, whose end may wait within the beginning of the next"
    for said in (
        "spark",
        "dask://",
        "dask://host",
        "tcp://127.0.0.1:8786",
        "dask://a@b:1",
        "dask://h:99999",
        "dask://h:1/x",
    ):
        monkeypatch.setenv("DPSERVE_ENGINE", said)
        with pytest.raises(InputError, match="DPSERVE_ENGINE="):
            require_rows(home, home.ledger.dataset("classes"))
    assert home.ledger.dataset("classes").most_used.spent == spent
    unseen = dict.fromkeys([str(tmp_path / "none")], 3)
    assert b"none" in answering.look(unseen)


@pytest.mark.server
def test_a_driver_that_is_killed_burns_its_job_and_harms_no_other(engine, home, here, tmp_path):
    words = [sys.executable, "-m", "serving.cli", "train", "classes", "--learner", "lazybb", "--epsilon", "0.5"]
    env = {**os.environ, "DPSERVE_HOME": str(home.path), "DPSERVE_ENGINE": engine.address}
    with (tmp_path / "said").open("wb") as said:
        process = warm.Popen([*words, "--set", "rounds=4000"], warm.ROOT, env, said, said)
    try:
        until(lambda: any(each.state.value == "started" for each in home.ledger.leases()), "it started", engine)
        (holding,) = home.ledger.leases()
    finally:
        process.kill()
        process.wait()
    assert job.recover(home)["burned"] == [holding.seq]
    assert bits(home, "lazybb") == here["lazybb"]


def test_a_manifest_has_every_row_once():
    def piece(name: str, low: int, high: int, folder: str = "a") -> Piece:
        return Piece(name, Path(folder), low, high, 10, "", Path("schema.yaml"), "", None, None, None, False)

    whole = [piece("one", 0, 4), piece("two", 4, 4), piece("three", 4, 10), piece("four", 0, 10, "b")]
    check_manifest(whole)
    for some, why in (
        ([], "names no piece"),
        ([*whole, whole[0]], "one: rows of it would count twice"),
        ([*whole[:2], piece("three", 3, 10)], "three: rows of it would count twice"),
        ([whole[0], piece("three", 5, 10)], "three: rows before it would not count"),
        (whole[:2], "block a: its last rows would not count"),
        ([whole[0], replace(whole[2], name="one")], "one: would count twice"),
    ):
        with pytest.raises(JobFailed, match=why):
            check_manifest(some)
    assert "10" not in repr(piece("one", 0, 4)).replace("10 ", "")


def test_a_piece_is_cut_where_its_parts_end_and_read_once_on_a_host(home, monkeypatch):
    """A part has its digest whoever asks it. What this host found right is read again once a file was touched, or
    where another host says that it was right."""
    dataset = home.ledger.dataset("numbers")
    folder = home.datasets / dataset.registration.commitment
    source = Source(folder, schema_of(home, dataset), None)
    [piece] = driver.manifest([source], folder / "schema.yaml", [100], 1, lambda one, read: [*read_all(one, read)])
    read = []
    plain = Source.digest
    monkeypatch.setattr(Source, "digest", lambda *about: read.append(about[1:]) or plain(*about))
    for count in (1, 3, 16, 40):
        some = piece.split(count)
        check_manifest(some)
        assert len(some) == min(count, pieces.PARTS)
        assert sum(each.open(folder)[0].size for each in some) == source.size
    twice = [again for each in piece.split(5) for again in each.split(2)]
    check_manifest(twice)
    assert twice[1].name == f"parts 2 to 3 of {piece.name}"
    assert sum(each.open(folder)[0].size for each in twice) == source.size
    assert len(read) == 5 * pieces.PARTS
    known = replace(piece, seen=frozenset([(pieces.host(), piece.state)]))
    assert known == piece
    known.open(folder)
    assert len(read) == 5 * pieces.PARTS
    replace(piece, seen=frozenset([("another", piece.state)])).open(folder)
    assert len(read) == 6 * pieces.PARTS
    file, whole = folder / "labels.npy", (folder / "labels.npy").read_bytes()
    try:
        with file.open("r+b") as opened:
            opened.seek(len(whole) - 1)
            opened.write(bytes([whole[-1] ^ 1]))
        with pytest.raises(JobFailed, match="piece 1 of 1 of block .*: its rows are not those of the manifest"):
            known.open(folder)
        known.split(2)[0].open(folder)  # its rows are
    finally:
        file.write_bytes(whole)


def read_all(source: Source, read) -> Iterator[bytes]:
    for name in source.files:
        yield from read(name)


def test_answers_are_bytes_that_say_whose_they_are():
    sums = np.array([[1, -2], [3, 1 << 62]])
    raw = answering.pack_answer("one", 5, sums)
    found = answering.Answer.of("one", raw)
    assert (found.rows, found.sums.tolist(), found.sums.dtype) == (5, sums.tolist(), np.int64)
    assert answering.Answer.of("one", answering.pack_answer("one", 5, np.array(7))).sums.shape == ()
    with pytest.raises(JobFailed, match="two: another piece answered"):
        answering.Answer.of("two", raw)
    with pytest.raises(JobFailed, match="why"):
        answering.Answer.of("one", answering.pack_refusal("one", "why"))
    for broken in (raw[:-1], b"", b"{}\n", raw[:20], 3, None):
        with pytest.raises(JobFailed, match="what came back is no answer"):
            answering.Answer.of("one", broken)


@pytest.mark.server
def test_over_tls_whoever_has_no_certificate_is_nobody(home, tmp_path, monkeypatch):
    import dask

    cert, key = certificate(tmp_path)
    options = ["--tls-ca-file", str(cert), "--tls-cert", str(cert), "--tls-key", str(key)]
    with DaskCluster(tmp_path, 1, options) as found:
        assert found.address.startswith("tls://")
        monkeypatch.setattr(workers, "CONNECT_SECONDS", 2.0)
        for said in (found.address, found.address.replace("tls://", "dask://")):
            monkeypatch.setenv("DPSERVE_ENGINE", said)
            with pytest.raises(EngineUnavailable, match="certificates"):
                require_rows(home, home.ledger.dataset("classes"))
        monkeypatch.setattr(workers, "CONNECT_SECONDS", 30.0)
        monkeypatch.setenv("DPSERVE_ENGINE", found.address)
        names = {"ca-file": str(cert), "client.cert": str(cert), "client.key": str(key)}
        ours = {f"distributed.comm.tls.{name}": file for name, file in names.items()}
        with dask.config.set(ours), closing(rows_of(home, "classes")) as rows:
            assert rows.ask(answering.CountRows()) == 150


def lose_scheduler(engine: DaskCluster, monkeypatch, at: int) -> None:
    """Kill the scheduler as the question of this number is asked: 1 counts rows, the next is the first of a release."""
    plain, asked = desk.Desk.ask, []

    def ask(own, run, question):
        asked.append(run)
        if len(asked) == at:
            engine.scheduler.kill()
            monkeypatch.setattr(workers, "CONNECT_SECONDS", 5.0)
        return plain(own, run, question)

    monkeypatch.setattr(desk.Desk, "ask", ask)


@pytest.mark.server
@pytest.mark.parametrize(("resume", "at"), [("1", 5), ("0", 2)], ids=["answers are kept", "nothing was drawn"])
def test_a_job_whose_scheduler_is_killed_goes_on_with_another_engine(tmp_path, home, monkeypatch, resume, at):
    """Each release of its plan is drawn once, by whichever engine."""
    draws, plain = [], draw_journal.DrawJournal.next
    monkeypatch.setenv("DPSERVE_RESUME", resume)

    def noted(own, draw):
        return plain(own, lambda: draws.append(draw()) or draws[-1])

    monkeypatch.setattr(draw_journal.DrawJournal, "next", noted)
    asked = JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 20 + at})
    with DaskCluster(tmp_path, 1) as lost:
        monkeypatch.setenv("DPSERVE_ENGINE", lost.address)
        lose_scheduler(lost, monkeypatch, at)
        held = job.submit(home, asked, by="test")
        with pytest.raises(JobFailed, match=r"engine: .*; it goes on, charged once, when a worker finds an engine"):
            job.run(home, held.seq)
    assert (home.ledger.job(held.seq).state.value, bool(draws)) == ("started", resume == "1")
    assert job.recover(home)["burned"] == []
    assert home.ledger.job(held.seq).state.value == "started"
    monkeypatch.setenv("DPSERVE_ENGINE", "local")
    assert job.recover(home)["finished"] == [held.seq]
    assert home.ledger.job(held.seq).public_state == "issued"
    assert len(draws) == len(plan(home, asked, "test").recipe.plan)
    assert audit_home(home).ok


@pytest.mark.server
@pytest.mark.last
def test_a_job_whose_scheduler_is_killed_after_draws_that_are_not_kept_is_burned(engine, home, monkeypatch, caplog):
    lose_scheduler(engine, monkeypatch, 4)
    for name in ("distributed", "distributed.client"):  # whose own handlers would print them
        monkeypatch.setattr(logging.getLogger(name), "handlers", [caplog.handler])
    held = job.submit(home, JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 30}), by="test")
    with pytest.raises(JobFailed, match="engine: .*; its budget is spent"):
        job.run(home, held.seq)
    assert home.ledger.job(held.seq).state.value == "burned"
    later = job.submit(home, JobRequest("classes", "lazybb", "0.5", parameters={"rounds": 31}), by="test")
    with pytest.raises(EngineUnavailable):
        job.run(home, later.seq)
    assert home.ledger.job(later.seq).state.value == "reserved"
    assert [record for record in caplog.records if record.exc_info] == []
