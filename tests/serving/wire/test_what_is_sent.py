"""What a caller sends is bounded by its kind where it is read, before anything is worked out with it."""

import contextlib
import json
import time
from decimal import Decimal

import pytest

from dpserve_verify.errors import InputError
from models.features.date_patterns import MOST
from models.features.features import CategoricalFeature
from models.features.table_format import MOST_WAYS, TableFormat, format_from_json
from models.features.written import MOST_WORDS, Written
from serving.wire import bounds, csv_tables
from serving.wire.errors import TooLarge
from serving.wire.request_bodies import CONTROL_BYTES, strict_json
from training.requests import ChargeRequest, JobRequest, ProfileRequest
from training.requests.fields import DELTA_PATTERN, EPSILON_PATTERN, MOST_ITEMS, MOST_PARAMETERS, matches
from training.requests.registration import RegistrationRequest

MOST_SECONDS = 0.2  # of a processor, for whatever one request holds


def seconds_of(work):
    """Return the processor seconds that work takes, whether it is refused or not."""
    start = time.process_time()
    with contextlib.suppress(InputError, TooLarge):
        work()
    return time.process_time() - start


@pytest.mark.parametrize("text", ["1e999", "1E-999", "-2.5e+0999", ".".join(["1", "0" * 998]), "0e999"])
def test_a_number_of_the_most_digits_is_exact(text):
    assert strict_json(text.encode()) == Decimal(text)


@pytest.mark.parametrize(
    "text", ["1e1000", "1E-1000", "1e99999999", "0e99999999", ".".join(["1", "0" * 999]), "1.5e" + "9" * 4000]
)
def test_a_longer_number_is_refused_where_it_is_read(text):
    with pytest.raises(InputError, match="too long"):
        strict_json(f'{{"renyi": {{"2": {text}}}}}'.encode())


def test_values_and_objects_are_counted_outside_of_texts():
    assert len(strict_json(b"[" + b"1," * bounds.MAX_VALUES + b"1]")) == bounds.MAX_VALUES + 1
    assert len(strict_json(b"[" + b"{}," * (bounds.MAX_OBJECTS - 1) + b"{}]")) == bounds.MAX_OBJECTS
    assert strict_json(b'"' + b",{" * bounds.MAX_VALUES + b'"')
    with pytest.raises(TooLarge, match="values"):
        strict_json(b"[" + b"1," * (bounds.MAX_VALUES + 1) + b"1]")
    with pytest.raises(TooLarge, match="objects"):
        strict_json(b"[" + b"{}," * bounds.MAX_OBJECTS + b"{}]")


@pytest.mark.parametrize(
    "part", ["1,", "1.5,", '"a",', "[],", "{},", '{"a":1.5},', "[[],[]],", "1e999,", "\\", '"\\ud800",']
)
def test_no_body_takes_long_to_parse(part):
    raw = ("[" + part * (CONTROL_BYTES // len(part)))[: CONTROL_BYTES - 2].encode() + b"1]"
    assert seconds_of(lambda: strict_json(raw)) < MOST_SECONDS


@pytest.mark.parametrize("end", [".5e0", ".5E+0", "1_0", "0.5 ", "1e00", "", ".", ".0", "e1"])
@pytest.mark.parametrize("pattern", [EPSILON_PATTERN, DELTA_PATTERN])
def test_zeros_that_lead_are_read_once(pattern, end):
    assert seconds_of(lambda: matches(pattern, "0" * 100_000 + end)) < MOST_SECONDS
    assert matches(EPSILON_PATTERN, "0" * 100_000 + ".5")
    assert matches(EPSILON_PATTERN, "0" * 9 + "1e00")


WRONG = [
    (ProfileRequest, {"dataset": "t", "epsilon": "1", "columns": [1] * 500_000}, "columns.0"),
    (ProfileRequest, {"dataset": "t", "epsilon": "1", "columns": ["a"] * (MOST_ITEMS + 1)}, f"at most {MOST_ITEMS}"),
    (ProfileRequest, {"dataset": "t", "epsilon": "1", "pairs": [[]] * 330_000}, "pairs.0"),
    (RegistrationRequest, {"name": "t", "family": [None] * 500_000}, "family.0"),
    (ChargeRequest, {"mechanism": "m", "why": "w", "renyi": {str(at): [] for at in range(100_000)}}, "renyi"),
    (JobRequest, {"dataset": "t", "epsilon": "1", "parameters": {str(at): 1 for at in range(MOST_PARAMETERS + 1)}},
     f"at most {MOST_PARAMETERS}"),
    (JobRequest, {"dataset": "t", "epsilon": "1", "tuning": {"grid": {str(at): [1] for at in range(100_000)}}},
     f"at most {MOST_PARAMETERS}"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "said"), WRONG)
def test_a_wrong_list_is_refused_at_its_first_entry(kind, body, said):
    def read():
        with pytest.raises(InputError, match=said):
            kind.of(body)

    assert seconds_of(read) < MOST_SECONDS


def test_lists_of_the_most_entries_are_taken():
    assert len(ProfileRequest.of({"dataset": "t", "epsilon": "1", "columns": ["a"] * MOST_ITEMS}).columns) == MOST_ITEMS
    parameters = {str(at): 1 for at in range(MOST_PARAMETERS)}
    assert JobRequest.of({"dataset": "t", "epsilon": "1", "parameters": parameters}).parameters == parameters


def test_a_figure_of_a_curve_stands_as_it_was_sent():
    body = {"mechanism": "m", "why": "w", "renyi": {"2": Decimal("0.5"), "3": "1", "4": 2}}
    assert ChargeRequest.of(body).renyi == body["renyi"]


def file_format(**column):
    return format_from_json({"columns": {"a": column}})


MARKS = ["-", "/", ".", ",", "'", " "]
DATES = [f"DD{one}MM{other}YYYY" for one in MARKS for other in MARKS]


def test_a_format_has_so_many_patterns_and_words():
    assert file_format(dates=DATES[:MOST])
    assert file_format(missing=["x"] * MOST_WORDS, missing_numbers=[1.0] * MOST_WORDS)
    assert format_from_json({"columns": {str(at): {"dates": [DATES[at]]} for at in range(MOST_WAYS)}})
    for column in ({"dates": DATES[: MOST + 1]}, *({name: ["x"] * (MOST_WORDS + 1)} for name in ("missing", "true"))):
        with pytest.raises(InputError, match="at most"):
            file_format(**column)
    with pytest.raises(InputError, match=f"more than {MOST_WAYS} ways"):
        format_from_json({"columns": {str(at): {"dates": [DATES[at]]} for at in range(MOST_WAYS + 1)}})


@pytest.mark.parametrize("column", [
    {"dates": ["DD.MM.YYYY"] * 5000}, {"missing": [f"w{at}" for at in range(10_000)]}, {"missing": ["x" * 60_000]},
    {"dates": DATES[:MOST]}, {"true": ["yes"] * 20_000},
])  # fmt: skip
def test_no_format_takes_long_to_read(column):
    columns = {str(at): column for at in range(8)} if len(json.dumps(column)) < 4000 else {"a": column}
    raw = json.dumps({"columns": columns}).encode()
    assert seconds_of(lambda: format_from_json(strict_json(raw))) < MOST_SECONDS


def test_words_for_missing_values_take_no_longer_where_there_are_many():
    words = tuple(f"w{at}" for at in range(MOST_WORDS))
    form = TableFormat(columns={"c": Written(missing=words)})
    raw = b"c\n" + b"zz\n" * 10_000 + b"w7\n"
    feature = CategoricalFeature("c", ("x", "y"))
    feed = csv_tables.table_of(raw, [feature], 20_000, form).read([feature], ["c"])
    assert feed["c"][-1] == ""
    assert seconds_of(lambda: csv_tables.table_of(raw, [feature], 20_000, form).read([feature], ["c"])) < MOST_SECONDS
