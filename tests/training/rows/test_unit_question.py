"""Who is one person is asked wherever a column may say so, and answered by --unit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from ledgers import EXAMPLES

from accountant.audit.audit import audit_home
from accountant.errors import DataError
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from training.datasets.datasets import register
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.unit_candidates import rank_candidates
from training.rows.people.id_words import names_people

ROWS = 400
TOTAL = Budget.of("1", "1e-6")
IDS = [f"p{row // 3}" for row in range(ROWS)]


def register_table(home, columns, name="d", ignore=(), features="", unit=None, suffix=".parquet", **how):
    folder = home.path.parent
    seed = sum(map(ord, name))
    numbers = np.random.default_rng(seed).normal(50, 20, ROWS)
    table = pa.table({"x": numbers, "y": ["no", "yes"] * (ROWS // 2), **columns})
    path = folder / f"{name}{suffix}"
    (pq.write_table if suffix == ".parquet" else pyarrow.csv.write_csv)(table, path)
    schema = folder / f"{name}.yaml"
    schema.write_text(
        'target: {name: y, classes: ["no", "yes"]}\nrecords: 400\n'
        f"ignore: {list(ignore)}\nfeatures:\n  x: {{type: numeric, range: [0, 100]}}\n{features}"
    )
    budget = None if how.get("families") else TOTAL
    register(home, name, path, schema, budget, Relation.ADD_REMOVE, unit, **how)
    return home.ledger.dataset(name).registration.unit


NAMES = [
    *("patient", "patient_id", "patientID", "PatientId", "Patient Id", "PATIENT_ID", "pid", "ssn", "userId", "user_no"),
    *("customerid", "customer.key", "email", "e_mail", "subject", "household_number", "client-uuid", "home_email"),
    *("user_id_hash", "patient_id_no", "ssn_hash"),
    *("N° client", "Numéro de client", "id_patient", "numéro d'assuré", "Matricule salarié", "Prénom"),
    *("Kundennummer", "Kunden-Nr.", "Patientennummer", "Versichertennummer", "Mitgliedsnummer", "Nachname"),
    *("número_cliente", "código do cliente", "ID do paciente", "codice paziente", "Cognome", "apellidos", "CPF"),
    *("Kd.-Nr.", "KdNr", "KDNR", "Kundennr", "Vers.-Nr.", "VSNR", "Pers.-Nr.", "PersNr", "Mitgl.-Nr.", "MitgliedNr"),
    *("Pat.-Nr.", "PatID", "Fallnummer", "AHV-Nr.", "Steuer-ID", "No client", "num_client", "n_secu", "matricule"),
    *("cod_cliente", "id_cliente", "NIF", "CF", "nr klienta", "Klantnr", "NHS number", "nhs_no", "cust_id", "CustNo"),
    *("cust_num", "acct_no", "account", "IBAN", "Telefon", "uid", "Name, Vorname"),
    *("klantnummer", "Personnummer", "Nr pacjenta", "PESEL", "номер клиент", "患者番号", "客户编号", "환자번호"),
]
NO_NAMES = [
    *("age", "x0", "id", "income", "marital_status", "relationship", "occupation", "patients_per_day", "is_client"),
    *("customer_age", "hours_per_week", "native_country", "y", "", "_", "number_of_users", "person_weight"),
    *(
        "Code postal",
        "Nom",
        "Revenu mensuel",
        "num_personnes",
        "Kundenalter",
        "Personenzahl",
        "codigo_postal",
        "Montant",
    ),
    *("Name", "Filiale", "PLZ", "Vertrags-Nr.", "Produktname", "city_name", "file_name", "Steuersatz", "version_no"),
    *("nombre_hijos", "socio_economic", "key_account_manager", "membership", "username_length", "Lohnnummer", "N"),
]


def test_names_that_say_so():
    assert [name for name in NAMES if not names_people(name)] == []
    assert [name for name in NO_NAMES if names_people(name)] == []


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_column_that_names_people_is_asked_about_also_under_ignore(home, suffix):
    about = {"columns": {"patient": IDS}, "ignore": ["patient"], "suffix": suffix}
    with pytest.raises(InputError, match=r"\['patient'\] may name people .*--unit patient .*--unit record") as caught:
        register_table(home, **about)
    assert caught.value.exit_code == 2
    assert home.ledger.datasets() == []
    assert not list(home.datasets.iterdir())
    assert register_table(home, **about, unit="patient").column == "patient"
    about["columns"] = {"patient": [f"other {name}" for name in IDS]}
    assert register_table(home, **about, name="e", unit="record").column is None
    assert audit_home(home).problems == ()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("values", [IDS, list(range(200)) * 2, [float(row // 2) for row in range(ROWS)]])
def test_values_that_repeat_as_ids_do_are_asked_about(home, values, suffix):
    with pytest.raises(InputError, match=r"\['code'\] may name people \(their values repeat") as caught:
        register_table(home, {"code": values}, ignore=["code"], suffix=suffix)
    assert "p1" not in str(caught.value.to_json())
    assert not list(home.datasets.iterdir())
    assert register_table(home, {"code": values}, ignore=["code"], suffix=suffix, unit="record").column is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("code", [f"{row}" for row in range(ROWS)]),  # each row its own
        ("code", ["a", "b", "c", "d"] * 100),  # a category
        ("id", list(range(ROWS))),
        ("day", pa.array(np.arange(ROWS) // 2, pa.int32()).cast(pa.date32())),
        ("member", [True, False] * 200),
        ("price", [0.25 + row // 2 for row in range(ROWS)]),
    ],
)
def test_what_names_no_people_is_not_asked_about(home, name, values):
    assert register_table(home, {name: values}, ignore=[name]).column is None


def test_a_feature_by_name_is_asked_about_and_a_flag_or_few_categories_are_not(home):
    numbers = "  account_no: {type: numeric, range: [0, 1000]}\n"
    with pytest.raises(InputError, match="account_no"):
        register_table(home, {"account_no": list(range(ROWS))}, features=numbers)
    few = "  client: {type: categorical, values: [a, b]}\n  member: {type: boolean}\n"
    register_table(home, {"client": ["a", "b"] * 200, "member": [True, False] * 200}, features=few)


def test_a_feature_of_categories_with_more_values_than_its_list_is_asked_about(home):
    """Whatever it is called: a list of categories is public, and ids of people are in no list."""
    feature = "  Ref: {type: categorical, values: [p0, p1, p2], other: expected}\n"
    with pytest.raises(InputError, match=r"\['Ref'\] may name people \(their values repeat"):
        register_table(home, {"Ref": IDS}, features=feature)
    assert register_table(home, {"Ref": IDS}, features=feature, unit="record").column is None
    places = [f"town {row % 50}" for row in range(ROWS)]
    listed = "  town: {type: categorical, values: [" + ", ".join(sorted(set(places))[:40]) + "]}\n"
    assert register_table(home, {"town": places}, features=listed, name="towns").column is None


@pytest.mark.parametrize(
    ("values", "like"),
    [
        (IDS, True),
        ([f"{row // 2:08x}" for row in range(ROWS)], True),
        ([f"p{row}" for row in range(ROWS)], False),  # each row its own
        (["north", "south"] * (ROWS // 2), False),
        ([f"town {row % 15}" for row in range(ROWS)], False),
        (["", "so it was said, and then at length once more"] * (ROWS // 2), False),
        (np.arange(ROWS) // 2, False),  # whole numbers are measures as well
    ],
)
def test_a_draft_proposes_columns_whose_texts_repeat_as_ids_do(tmp_path, values, like):
    pyarrow.csv.write_csv(pa.table({"Ref": values, "y": ["no", "yes"] * (ROWS // 2)}), tmp_path / "a.csv")
    assert SchemaProposal.of_file(tmp_path / "a.csv").people == (("Ref",) if like else ())


def test_no_shipped_file_has_a_false_alarm():
    for path in sorted((EXAMPLES).glob("*.parquet")):
        assert SchemaProposal.of_file(path).people == (), path.name


def test_adult_names_nobody(home):
    files = EXAMPLES / "adult_train.parquet", EXAMPLES / "adult.schema.yaml"
    assert register(home, "adult", *files, TOTAL, Relation.ADD_REMOVE, None).registration.unit.column is None


def test_answers_that_do_not_fit(home):
    with pytest.raises(DataError, match="no such column"):
        register_table(home, {"patient": IDS}, ignore=["patient"], unit="person")
    with pytest.raises(InputError, match="rename"):
        register_table(home, {"record": IDS}, ignore=["record"], unit="record")
    with pytest.raises(InputError, match="contributions=2"):
        register_table(home, {}, contributions=2)
    with pytest.raises(InputError, match="unit=record"):
        register_table(home, {}, contributions=2, unit="record")


def test_a_family_that_names_the_person_by_other_columns_asks(home):
    register_table(home, {"patient": IDS}, ignore=["patient"], unit="patient", name="a")
    more = {"columns": {"case": IDS}, "ignore": ["case"], "families": ("a",)}
    with pytest.raises(InputError, match=r"name the person by \['patient'\]; which column") as caught:
        register_table(home, **more, name="b")
    assert caught.value.details == {"answers": ["--unit COLUMN"]}
    with pytest.raises(InputError, match="same ids of the same people") as caught:
        register_table(home, **more, name="b", unit="case")
    assert caught.value.details == {"answers": ["--unit case=patient"]}
    assert register_table(home, **more, name="b", unit="case=patient").column == "case"
    with pytest.raises(InputError, match="same ids"):
        register_table(home, {"patient": IDS}, ignore=["patient"], families=("b",), name="c", unit="patient")
    unit = "patient=case"
    assert (
        register_table(home, {"patient": IDS}, ignore=["patient"], families=("b",), name="c", unit=unit).column
        == "patient"
    )
    assert audit_home(home).problems == ()


def loans(folder, clerks=371) -> tuple[Path, pa.Table]:
    """1,200 contracts of 600 clients; the names of so many clients are written in two ways."""
    clients = [row % 600 for row in range(1200)]
    names = [f"Weiss-{k}, {'J.' if row >= 600 and k < clerks else 'Julia'}" for row, k in enumerate(clients)]
    table = pa.table(
        {
            "Name, Vorname": names,
            "PLZ": [f"{10000 + 7 * (k % 250)}" for k in clients],
            "Kd.-Nr.": [f"K{k:05}" for k in clients],
            "e-mail": [f"k{k}@example.org" for k in clients],
            "x": np.arange(1200) % 97,
            "y": ["no", "yes"] * 600,
        }
    )
    pyarrow.csv.write_csv(table, folder / "loans.csv")
    return folder / "loans.csv", table


def test_a_customer_number_comes_before_a_name_at_every_door(home, tmp_path):
    path, _ = loans(tmp_path)
    proposal = SchemaProposal.of_file(path)
    assert proposal.people == ("Kd.-Nr.", "e-mail", "Name, Vorname")
    assert {"Kd.-Nr.", "Name, Vorname", "e-mail"} <= proposal.ignore.keys()
    assert proposal.people_words[0] == (
        "Kd.-Nr.: 600 different ones in 1,200 rows; by the bound on rows of one person, not used are 50 % with 1"
    )
    assert proposal.people_words[-1] == "one Kd.-Nr. has several Name, Vorname: 371"
    draft = proposal.to_yaml("loans.csv", looked=True)
    assert "--unit Kd.-Nr." in draft
    assert "371" not in draft, "what rows say stands in no schema"
    (tmp_path / "s.yaml").write_text(
        'target: {name: y, classes: ["no", "yes"]}\nrecords: 1200\nignore: ["Name, Vorname", PLZ, Kd.-Nr., e-mail]\n'
        "features:\n  x: {type: numeric, range: [0, 100]}\n"
    )
    with pytest.raises(InputError) as asked:
        register(home, "loans", path, tmp_path / "s.yaml", TOTAL, Relation.ADD_REMOVE, None)
    said, first = str(asked.value), asked.value.details["answers"][0]
    assert first.startswith("--unit Kd.-Nr. ")
    assert said.index("'Kd.-Nr.'") < said.index("'PLZ'") < said.index("'e-mail'") < said.index("'Name, Vorname'")
    assert "one Kd.-Nr. has several Name, Vorname: 371" in said
    assert "Weiss" not in str(asked.value.to_json())
    assert register(home, "loans", path, tmp_path / "s.yaml", TOTAL, Relation.ADD_REMOVE, "Kd.-Nr.").last is None


def test_what_is_said_of_candidates_is_counted_exactly():
    """By a slow count in Python, on columns drawn at random; spelt as ids are everywhere."""
    law = np.random.default_rng(3)
    codes = {name: law.integers(-1, size, 500) for name, size in (("patient_id", 60), ("patient_name", 90))}
    codes = {name: np.unique(own, return_inverse=True)[1] - 1 for name, own in codes.items()}
    found = rank_candidates(codes)
    assert found.columns == ("patient_id", "patient_name")
    for each in found.ranked:
        times = Counter(code for code in codes[each.column].tolist() if code >= 0)
        assert (each.distinct, each.rows) == (len(times), times.total())
        for bound, share in each.unused.items():
            assert share == sum(max(0, count - bound) for count in times.values()) / times.total()
    pairs = {(a, b) for a, b in zip(*(own.tolist() for own in codes.values()), strict=True) if min(a, b) >= 0}
    several = [sum(count > 1 for count in Counter(pair[at] for pair in pairs).values()) for at in (0, 1)]
    assert found.pairs == (
        f"one patient_id has several patient_name: {several[0]}",
        f"one patient_name has several patient_id: {several[1]}",
    )
