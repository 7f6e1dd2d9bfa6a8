"""Loans as banks give them, made up: a German workbook with titles above the names and a second sheet, a French text of
semicolons in another alphabet, an Indian text with lakhs and the day first. Several loans of one client, answers that
are not known yet, texts over several lines.
"""

from __future__ import annotations

import csv
import datetime
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbooks import Styled, write_workbook

DATES = "2022-01-01 .. 2025-12-31"


@dataclass(frozen=True)
class Bank:
    """A bank's export. `columns`: the id of the loan, the client's, name, birth, sex, trade, income, amount, months,
    rate, day, branch, whether a house is owned, a remark, and whether it was not paid back, which is to be predicted.
    `words`: of these. `public`: what everybody may know, the line of each column that is not as proposed. `cells`: how
    cells are written and `read`: how the file is, as the page shows it.
    """

    file: str
    columns: Sequence[str]
    words: Mapping[str, Sequence[str]]
    public: Mapping[str, str]
    cells: Sequence[str]
    read: str
    write: Callable[[Path, Bank, Sequence[Sequence[Any]]], Path]

    @property
    def client(self) -> str:
        """Return the column that names the person."""
        return self.columns[1]

    @property
    def ignored(self) -> set[str]:
        """Return the columns that are proposed to be ignored: ids, the name, and the remark."""
        return {self.columns[place] for place in (0, 1, 2, 13)}

    def make(self, path: Path, rows: int, seed: int = 11) -> Path:
        """Write so many loans in a file of this name."""
        return self.write(path, self, [*self._rows(rows, seed)])

    def _rows(self, rows: int, seed: int) -> Iterator[Sequence[Any]]:
        draw, first, words = random.Random(seed), datetime.date(1945, 1, 1), self.words
        clients = [
            (f"C{number:06d}", f"{words['name'][0]} {number}", first + datetime.timedelta(days=draw.randrange(21_900)),
             draw.choice(words["sex"]), draw.choice(words["trade"]), max(600.0, draw.gauss(2300, 900)))
            for number in range(rows * 3 // 4)
        ]  # fmt: skip
        for number in range(rows):
            client, name, born, sex, trade, income = draw.choice(clients)
            day = datetime.date(2022, 1, 1) + datetime.timedelta(days=draw.randrange(1300))
            amount, months = draw.uniform(800, 24_000), draw.choice((12, 24, 36, 48, 60, 84))
            risk = 1.1 * (amount / months / income * 10 - 1) + 0.8 * (trade in words["trade"][-2:])
            lost = draw.random() <= 0.1
            yield (
                f"D{number:05d}", client, name, born, sex, trade,
                income if draw.random() > 0.05 else words["missing"][0], amount, months, max(0.0, draw.gauss(4.5, 1.2)),
                day, draw.choice(words["branch"]), draw.choice(words["house"]), draw.choice(words["remark"]),
                "" if lost else words["lost"][risk + draw.gauss(0, 0.5) > 0.2],
            )  # fmt: skip


def _write_texts(delimiter: str, encoding: str, day: str, number: Callable[[float], str], rate: str) -> Any:
    """Return a writer of texts, whose days are written by a pattern, and numbers by a function."""

    def cell(place: int, value: Any) -> object:
        if isinstance(value, datetime.date):
            return f"{value:{day}}"
        return (rate if place == 9 else "{}").format(number(value)) if isinstance(value, float) else value

    def write(path: Path, bank: Bank, rows: Sequence[Sequence[Any]]) -> Path:
        with path.open("w", newline="", encoding=encoding) as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(bank.columns)
            writer.writerows([cell(place, value) for place, value in enumerate(row)] for row in rows)
        return path

    return write


def _write_book(path: Path, bank: Bank, rows: Sequence[Sequence[Any]]) -> Path:
    """Write a workbook with two rows of titles, and a sheet that explains words."""
    cells = [
        [Styled(round(value / 100, 4)) if place == 9 else round(value, 2) if isinstance(value, float) else value or None
         for place, value in enumerate(row)]
        for row in rows
    ]  # fmt: skip
    titles = [["Kreditbestand Privatkunden"], ["Stand: 30.09.2025", None, "vertraulich"]]
    notes = [["Ausfall", "ja = mehr als 90 Tage"]]
    return write_workbook(path, {"Bestand": [*titles, bank.columns, *cells], "Legende": notes})


def _french(number: float) -> str:
    return f"{number:,.2f}".replace(",", "\u00a0").replace(".", ",")


def _in_lakhs(number: float) -> str:
    """Group a number's digits by three, and then by two."""
    whole, cents = f"{number:.2f}".split(".")
    head, tail = whole[:-3], whole[-3:]
    groups = [head[max(0, at - 2) : at] for at in range(len(head), 0, -2)][::-1]
    return ",".join([*groups, tail]) + f".{cents}"


TRADES = {
    "de": ("Angestellter", "Arbeiter", "Beamter", "Rentner", "Student", "arbeitslos"),
    "fr": ("cadre", "ouvrier", "employé", "artisan", "retraité", "étudiant", "sans emploi"),
    "in": ("salaried", "self-employed", "farmer", "retired", "student", "unemployed"),
}
GERMAN = Bank(
    "kredite.xlsx",
    ("Vertrags-Nr.", "Kd.-Nr.", "Name, Vorname", "Geb.-Datum", "Geschlecht", "Beruf", "Netto-Einkommen (€)",
     "Kreditbetrag", "Laufzeit Monate", "Zinssatz", "Antragsdatum", "Filiale", "Eigentümer?", "Bemerkung", "Ausfall"),
    {
        "name": ["Groß, Jürgen"], "sex": ["m", "w", "d"], "trade": TRADES["de"], "missing": ["k.A."],
        "branch": ["Leipzig", "Köln", "Frankfurt a.M."], "house": ["ja", "nein"],
        "remark": ["", "Stammkunde", 'lt. Kunde "alles ok"', "Rückruf;\nUnterlagen fehlen"], "lost": ["nein", "ja"],
    },
    {
        "Geb.-Datum": "1930-01-01 .. 2010-12-31", "Geschlecht": "m, w, d", "Beruf": ", ".join(TRADES["de"]),
        "Netto-Einkommen (€)": "0 .. 10000", "Kreditbetrag": "0 .. 30000", "Laufzeit Monate": "6 .. 96",
        "Zinssatz": "0 .. 12", "Antragsdatum": DATES, "Filiale": "Leipzig, Köln, Frankfurt a.M.",
        "Ausfall": "target nein, ja leave-out",
    },
    ("missing: k.A.",),
    "the sheet Bestand, names in row 3",
    _write_book,
)  # fmt: skip
FRENCH = Bank(
    "prets.csv",
    ("N° dossier", "N° client", "Nom", "Date de naissance", "Sexe", "Profession", "Revenu mensuel", "Montant",
     "Durée (mois)", "Taux", "Date demande", "Agence", "Propriétaire", "Commentaire", "Défaut"),
    {
        "name": ["Zoé Lefèvre"], "sex": "FH", "trade": TRADES["fr"], "missing": ["NC"],
        "branch": ["Lyon", "Paris 11e", "Marseille", "Lille", "Orléans"], "house": "ON",
        "remark": ["", "client fidèle", 'déjà refusé "une fois"', "à rappeler;\nvoir dossier"],
        "lost": ["non", "oui"],
    },
    {
        "Date de naissance": "1930-01-01 .. 2010-12-31", "Sexe": "F, H", "Profession": ", ".join(TRADES["fr"]),
        "Revenu mensuel": "0 .. 10000", "Montant": "0 .. 30000", "Durée (mois)": "6 .. 96", "Taux": "0 .. 12",
        "Date demande": DATES, "Agence": "Lyon, Paris 11e, Marseille, Lille, Orléans",
        "Défaut": "target non, oui leave-out",
    },
    ("decimal ,, thousands blank, missing: NC", "decimal ,, unit %"),
    "as cp1252, with semicolon between cells, names in row 1",
    _write_texts(";", "cp1252", "%d/%m/%Y", _french, "{} %"),
)  # fmt: skip
INDIAN = Bank(
    "loans_india.csv",
    ("Loan ID", "Customer ID", "Customer Name", "Date of Birth", "Gender", "Occupation", "Monthly Income", "Amount",
     "Tenure", "Rate", "Applied On", "Branch", "Owns House", "Remarks", "Default"),
    {
        "name": ["Asha Verma"], "sex": ["Male", "Female"], "trade": TRADES["in"], "missing": ["NA"],
        "branch": ["Mumbai", "Pune", "New Delhi"], "house": ["Yes", "No"],
        "remark": ["", "old customer", 'said "will pay"', "call back,\npapers missing"], "lost": ["No", "Yes"],
    },
    {
        "Date of Birth": "1930-01-01 .. 2010-12-31", "Gender": "Male, Female", "Occupation": ", ".join(TRADES["in"]),
        "Monthly Income": "0 .. 1000000", "Amount": "0 .. 3000000", "Tenure": "6 .. 96", "Rate": "0 .. 12",
        "Applied On": DATES, "Branch": "Mumbai, Pune, New Delhi", "Default": "target No, Yes leave-out",
    },
    ("thousands comma", "DD-MM-YYYY"),
    "as utf-8, with comma between cells, names in row 1",
    _write_texts(",", "utf-8", "%d-%m-%Y", lambda number: _in_lakhs(100 * number if number > 99 else number), "{}"),
)  # fmt: skip
BANKS = {"German": GERMAN, "French": FRENCH, "Indian": INDIAN}
