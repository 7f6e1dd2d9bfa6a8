"""Loans as an export of a French bank gives them, made up: semicolons, another alphabet, decimal commas, blanks between
thousands, dates with the day first, several loans of one client, answers that are not known yet, texts over several
lines."""

from __future__ import annotations

import csv
import datetime
import random
from pathlib import Path

COLUMNS = (
    *("N° dossier", "N° client", "Nom", "Date de naissance", "Sexe", "Profession", "Revenu mensuel", "Montant"),
    *("Durée (mois)", "Taux", "Date demande", "Agence", "Propriétaire", "Commentaire", "Défaut"),
)
TRADES = ("cadre", "ouvrier", "employé", "artisan", "retraité", "étudiant", "sans emploi")
TOWNS = ("Lyon", "Paris 11e", "Marseille", "Lille", "Orléans")
REMARKS = ("", "client fidèle", 'déjà refusé "une fois"', "à rappeler;\nvoir dossier")
# What everybody may know of them: the line of each column, where it is not as proposed.
PUBLIC = {
    "Date de naissance": "1930-01-01 .. 2010-12-31",
    "Sexe": "F, H",
    "Profession": ", ".join(TRADES),
    "Revenu mensuel": "0 .. 10000",
    "Montant": "0 .. 30000",
    "Durée (mois)": "6 .. 96",
    "Taux": "0 .. 12",
    "Date demande": "2020-01-01 .. 2025-12-31",
    "Agence": ", ".join(TOWNS),
    "Propriétaire": "O, N",
    "Défaut": "target non, oui leave-out",
}


def french(number: float) -> str:
    return f"{number:,.2f}".replace(",", "\u00a0").replace(".", ",")


def write_loans(path: Path, rows: int, seed: int = 11) -> Path:
    draw = random.Random(seed)
    first = datetime.date(1945, 1, 1)
    clients = [
        (f"C{number:06d}", f"Zoé Lefèvre {number}", first + datetime.timedelta(days=draw.randrange(21_900)),
         draw.choice("FH"), draw.choice(TRADES), max(600.0, draw.gauss(2300, 900)))
        for number in range(rows * 3 // 4)
    ]  # fmt: skip
    with path.open("w", newline="", encoding="cp1252") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(COLUMNS)
        for number in range(rows):
            client, name, born, sex, trade, income = draw.choice(clients)
            asked = datetime.date(2022, 1, 1) + datetime.timedelta(days=draw.randrange(1300))
            amount, months = draw.uniform(800, 24_000), draw.choice((12, 24, 36, 48, 60, 84))
            risk = 1.1 * (amount / months / income * 10 - 1) + 0.8 * (trade in TRADES[-2:]) + draw.gauss(0, 0.5)
            known = draw.random() > 0.1
            writer.writerow(
                [f"D{number:05d}", client, name, f"{born:%d/%m/%Y}", sex, trade,
                 french(income) if draw.random() > 0.05 else "NC", french(amount), months,
                 f"{french(draw.gauss(4.5, 1.2))} %", f"{asked:%d/%m/%Y}",
                 draw.choice(TOWNS), draw.choice("ON"), draw.choice(REMARKS),
                 "" if not known else "oui" if risk > 0.2 else "non"]
            )  # fmt: skip
    return path
