"""A messy table, as people bring it: 6,120 rows and 202 columns of a made-up hospital, nobody's.

    python examples/messy.py messy.csv messy.yaml [french | german]

writes the table as it came, and the schema that a person would write for it. Dates in two formats, decimal commas, line
breaks in cells, ids, free text, words for yes and no in two languages, five targets. The same every time; or the same
patients as a spreadsheet in France or Germany writes them.
"""

from __future__ import annotations

import csv
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROWS, LABS, PATIENTS = 6120, 185, 2100
HEAD = [
    "patient_id", "insurance_no", "record_uuid", "visit_date", "birth_date", "visit_time", "comment", "diagnosis_text",
    "smoker", "allergy", "sex", "region",
]  # fmt: skip
TARGETS = ["readmitted", "ward", "stay_days", "died", "cost"]
REGIONS = ["north", "east", "south", "west"]
WARDS = ["surgery", "medicine", "children", "other"]
WORDS = ["stable after the night", "improved; see letter", "family informed", "pain gone", "to be seen again"]


@dataclass(frozen=True)
class Spelling:
    """How a spreadsheet of a country writes a table: in which encoding, with which marks, days and words."""

    encoding: str
    mark: str  # between thousands
    day: str  # as strftime has it
    pattern: str
    yes: str
    no: str
    words: dict[str, str]


SPELLINGS = {
    "french": Spelling(
        "cp1252", "\u00a0", "{day:02d}/{month:02d}/{year}", "DD/MM/YYYY", "oui", "non",
        dict(zip(
            [*REGIONS, *WARDS, *WORDS, "female", "male"],
            ["nord", "est", "sud", "ouest", "chirurgie", "médecine", "pédiatrie", "à part", "état stable après la nuit",
             "amélioré, voir la lettre", "famille prévenue", "sans douleur", "à revoir", "féminin", "masculin"],
            strict=True,
        )),
    ),
    "german": Spelling(
        "latin-1", ".", "{day}.{month}.{year}", "DD.MM.YYYY", "ja", "nein",
        dict(zip(
            [*REGIONS, *WARDS, *WORDS, "female", "male"],
            ["Norden", "Osten", "Süden", "Westen", "Chirurgie", "Innere", "Säuglinge", "übrige",
             "stabil nach der Nacht", "besser; siehe Brief", "Angehörige verständigt", "schmerzfrei",
             "Wiedervorstellung", "weiblich", "männlich"],
            strict=True,
        )),
    ),
}  # fmt: skip


def spelt(cell: str, spelling: Spelling) -> str:
    """A cell as that spreadsheet writes it."""
    parts = re.split(r"([,\n]+)", cell) if cell not in spelling.words else [cell]
    if day := re.fullmatch(r"(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)|(?P<D>\d\d)\.(?P<M>\d\d)\.(?P<Y>\d{4})", cell):
        year, month, number = (int(day[name] or day[name.upper()]) for name in "ymd")
        return spelling.day.format(day=number, month=month, year=year)
    if re.fullmatch(r"-?\d+[.,]\d+", cell):
        return cell.replace(".", ",")
    if cell in ("yes", "ja", "no", "nein"):
        return spelling.yes if cell in ("yes", "ja") else spelling.no
    return "".join(spelling.words.get(part, part) for part in parts)


def rows_in(spelling: Spelling | None) -> list[list[str]]:
    """The table in that spelling; a cost has its mark between thousands."""
    if spelling is None:
        return rows()
    found = [[spelt(cell, spelling) for cell in row] for row in rows()]
    for row in found:
        row[-1] = f"{int(row[-1]):,}".replace(",", spelling.mark) if row[-1] else ""
    return found


def labs() -> list[str]:
    """Names of the laboratory columns."""
    return [f"lab_{number:03d}" for number in range(1, LABS + 1)]


def rows() -> list[list[str]]:
    """The table: in some rows numbers with commas, and yes or no in another language."""
    draw = random.Random(19)
    found = []
    for row in range(ROWS):
        patient = draw.randrange(PATIENTS)
        sick = draw.gauss(0, 1)
        day, month, year = draw.randint(1, 28), draw.randint(1, 12), draw.randint(2019, 2024)
        date = f"{day:02d}.{month:02d}.{year}" if draw.random() < 0.4 else f"{year}-{month:02d}-{day:02d}"
        smoker, allergy = draw.random() < 0.3, draw.random() < 0.2
        german = draw.random() < 0.2
        said = [("ja" if each else "nein") if german else ("yes" if each else "no") for each in (smoker, allergy)]
        comment = f"{draw.choice(WORDS)},\n{draw.choice(WORDS)}" if draw.random() < 0.3 else draw.choice(WORDS)
        values = [
            f"P{patient:05d}", f"{10**9 + 7919 * patient}", f"{draw.getrandbits(64):016x}", date,
            f"{draw.randint(1, 28):02d}.{draw.randint(1, 12):02d}.{draw.randint(1930, 2015)}",
            f"{draw.randint(0, 23):02d}:{draw.randint(0, 59):02d}", comment, draw.choice(WORDS), *said,
            draw.choice(["female", "male"]), draw.choice(REGIONS),
        ]  # fmt: skip
        for number in range(LABS):
            value = 50 + 12 * (0.6 * sick if number < 20 else 0.0) + 12 * draw.gauss(0, 1)
            text = f"{value:.2f}"
            comma = number % 3 == 0 and row % 2 == 0
            values.append("NA" if draw.random() < 0.04 else text.replace(".", ",") if comma else text)
        stay = max(0.0, 4 + 2.5 * sick + draw.gauss(0, 2))
        values += [
            "yes" if sick + draw.gauss(0, 1) > 0.9 else "no", WARDS[min(3, int(abs(sick + draw.gauss(0, 1)) * 1.6))],
            f"{stay:.1f}", "1" if draw.random() < 0.0046 else "0",
            "" if draw.random() < 0.1 else f"{900 + 700 * stay + 200 * draw.gauss(0, 1):.0f}",
        ]  # fmt: skip
        found.append(values)
    return found


def schema_in(spelling: Spelling | None) -> str:
    """The schema of the table in that spelling."""
    if spelling is None:
        return schema()
    text = re.sub(
        r"\[(.*?)\]",
        lambda listed: f"[{', '.join(spelling.words.get(word, word) for word in listed[1].split(', '))}]",
        schema(),
    )
    text = re.sub(", written: .*?]", "", text).replace('["no", "yes"]', f"[{spelling.no}, {spelling.yes}]")
    form = f"delimiter: semicolon, encoding: {spelling.encoding}, decimal: ',', dates: [{spelling.pattern}]"
    words = f"true_words: [{spelling.yes}], false_words: [{spelling.no}]"
    text = re.sub("format: .*", f"format: {{{form}, {words}}}", text)
    return text.replace("cost: {", f"cost: {{thousands: '{spelling.mark if spelling.mark == '.' else ' '}', ")


def schema() -> str:
    """What a person writes down who knows the forms of that hospital, and has not looked at the rows."""
    numbers = [f"  {name}: {{type: numeric, range: [0, 120]}}" for name in labs()]
    return "\n".join(
        [
            "# The schema of the messy table: public knowledge, from the forms of the hospital.",
            "targets:",
            '  readmitted: {classes: ["no", "yes"]}',
            f"  ward: {{classes: [{', '.join(WARDS)}]}}",
            "  stay_days: {range: [0, 30]}",
            "  died: {classes: [0, 1]}",
            "  cost: {range: [0, 30000], missing: leave-out}",
            f"records: {ROWS}",
            "format: {decimal: either, true_words: [ja], false_words: [nein]}",
            "features:",
            "  smoker: {type: boolean}",
            "  allergy: {type: boolean}",
            "  visit_date: {type: date, range: [2019-01-01, 2024-12-31], written: [YYYY-MM-DD, DD.MM.YYYY]}",
            "  birth_date: {type: date, range: [1930-01-01, 2015-12-31], written: [DD.MM.YYYY]}",
            '  visit_time: {type: time, range: ["00:00", "23:59"], bins: 24}',
            "  sex: {type: categorical, values: [female, male]}",
            f"  region: {{type: categorical, values: [{', '.join(REGIONS)}]}}",
            *numbers,
            f"ignore: [{', '.join(name for name in HEAD[:8] if name[-5:] not in ('_date', '_time'))}]",
            "",
        ]
    )


def write(path: Path, spelling: Spelling | None = None) -> None:
    """The table."""
    with path.open("w", encoding=spelling.encoding if spelling else "utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";" if spelling else ",")
        writer.writerow([*HEAD, *labs(), *TARGETS])
        writer.writerows(rows_in(spelling))


if __name__ == "__main__":
    table, described = map(Path, sys.argv[1:3])
    chosen = SPELLINGS[sys.argv[3]] if len(sys.argv) > 3 else None
    write(table, chosen)
    described.write_text(schema_in(chosen), "utf-8")
