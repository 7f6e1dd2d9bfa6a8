"""Files as well-known public tables are written: their columns, separators, marks and codes; all rows are made up.

Of each: the file as it would be downloaded, how a person drafts its schema, and what that person then says of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROWS = 400


@dataclass(frozen=True)
class Shape:
    """`file`: its name, `text`: what stands in it; `draft`: options of the draft; `names`: of the columns, where no
    line of the file has them. `answers`: by column what stands in the draft's place, with `target` and `records`;
    `ignored`: what a person takes out of the features. `labels`: the answer of each row.
    """

    file: str
    text: str
    answers: Mapping[str, object]
    draft: Sequence[str] = ("--data",)
    names: Sequence[str] = ()
    ignored: Sequence[str] = ()
    labels: Sequence[str] = ()


def adult() -> Shape:
    """UCI's adult.data: no header, a blank after each comma, `?`, and no line end but \\n."""
    draw, rows, labels = random.Random("adult"), [], []
    for _ in range(ROWS):
        degree = draw.choice(["Bachelors", "HS-grad", "11th"])
        label = ">50K" if (degree == "Bachelors") != (draw.random() < 0.05) else "<=50K"
        rows.append(
            [
                draw.randint(17, 90),
                draw.choice(["Private", "Self-emp-not-inc", "?"]),
                draw.randint(10**4, 10**6),
                degree,
                label,
            ]
        )
        labels.append(label)
    return Shape(
        "adult.data", "".join(", ".join(map(str, row)) + "\n" for row in rows),
        {"target": {"name": "income", "classes": ["<=50K", ">50K"]}, "records": ROWS,
         "workclass": '{type: categorical, values: [Private, Self-emp-not-inc], missing_words: ["?"]}',
         "education": "{type: categorical, values: [Bachelors, HS-grad, 11th]}",
         "age": "{type: numeric, range: [17, 90]}", "fnlwgt": "{type: numeric, range: [10000, 1000000]}"},
        ("--data", "--no-header"), ("age", "workclass", "fnlwgt", "education", "income"), labels=labels,
    )  # fmt: skip


def telco() -> Shape:
    """Telco churn: an id, `Yes` and `No`, 0 and 1, and one blank for a charge that is not there."""
    draw, labels = random.Random("telco"), []
    lines = ["customerID,SeniorCitizen,Partner,tenure,Contract,TotalCharges,Churn"]
    for _ in range(ROWS):
        contract, tenure = draw.choice(["Month-to-month", "One year", "Two year"]), draw.randint(0, 72)
        label = "Yes" if (contract == "Month-to-month") != (draw.random() < 0.05) else "No"
        charges = f"{tenure * draw.uniform(18, 118):.2f}" if tenure else " "
        number = f"{draw.randrange(10**4):04}-{''.join(draw.choices('ABCDEFGH', k=5))}"
        lines.append(
            f"{number},{draw.randint(0, 1)},{draw.choice(['Yes', 'No'])},{tenure},{contract},{charges},{label}"
        )
        labels.append(label)
    return Shape(
        "telco.csv", "\n".join(lines) + "\n",
        {"target": {"name": "Churn", "classes": ["No", "Yes"]}, "records": ROWS,
         "SeniorCitizen": "{type: boolean}", "tenure": "{type: numeric, range: [0, 72]}",
         "Contract": "{type: categorical, values: [Month-to-month, One year, Two year]}",
         "TotalCharges": "{type: numeric, range: [0, 9000]}"}, labels=labels,
    )  # fmt: skip


def breast_cancer() -> Shape:
    """UCI's breast-cancer-wisconsin.data: no header, whole numbers alone, ids that repeat, `?`, classes 2 and 4."""
    draw, lines, labels = random.Random("cancer"), [], []
    for _ in range(ROWS):
        clump = draw.randint(1, 10)
        label = "4" if (clump > 5) != (draw.random() < 0.05) else "2"
        nuclei = "?" if draw.random() < 0.03 else draw.randint(1, 10)
        lines.append(f"{draw.randint(10**6, 10**6 + 300)},{clump},{draw.randint(1, 10)},{nuclei},{label}")
        labels.append(label)
    number = "{type: numeric, range: [1, 10], bins: 10%s}"
    return Shape(
        "breast-cancer-wisconsin.data", "\n".join(lines) + "\n",
        {"target": {"name": "class", "classes": [2, 4]}, "records": ROWS, "clump_thickness": number % "",
         "cell_size": number % "", "bare_nuclei": number % ', missing_words: ["?"]'},
        ("--data", "--no-header"), ("sample_code_number", "clump_thickness", "cell_size", "bare_nuclei", "class"),
        ("sample_code_number",), labels,
    )  # fmt: skip


def auto_mpg() -> Shape:
    """UCI's auto-mpg.data: no header, columns parted by any number of blanks, a tab and quotes before the name, `?`."""
    draw, lines = random.Random("mpg"), []
    for _ in range(ROWS):
        cylinders = draw.choice([4, 6, 8])
        power = "?     " if draw.random() < 0.03 else f"{draw.uniform(46, 230):<6.1f}"
        mpg = 45 - 4 * cylinders + draw.uniform(-2, 2)
        lines.append(
            f"{mpg:.1f}   {cylinders}   {draw.uniform(68, 455):.1f}      {power}     {draw.randint(1, 3)}\t"
            f'"{draw.choice(["ford", "vw"])} {draw.randint(1, 99)}"'
        )
    return Shape(
        "auto-mpg.data", "\n".join(lines) + "\n",
        {"target": {"name": "mpg", "range": [5, 50]}, "records": ROWS,
         "cylinders": "{type: categorical, values: [4, 6, 8]}",
         "displacement": "{type: numeric, range: [60, 460]}", "origin": "{type: categorical, values: [1, 2, 3]}",
         "horsepower": '{type: numeric, range: [40, 240], missing_words: ["?"]}'},
        ("--data", "--no-header"), ("mpg", "cylinders", "displacement", "horsepower", "origin", "car_name"),
        ("car_name",),
    )  # fmt: skip


def compas() -> Shape:
    """COMPAS: an index without a name, two columns of one name, dates, empty cells, texts with commas in quotes."""
    draw, labels = random.Random("compas"), []
    lines = ["id,name,sex,dob,age_cat,priors_count,c_jail_in,c_charge_degree,decile_score,priors_count,two_year_recid"]
    for number in range(ROWS):
        priors = draw.randint(0, 20)
        label = str(int((priors > 6) != (draw.random() < 0.05)))
        jail = (
            ""
            if draw.random() < 0.1
            else f"2013-{draw.randint(1, 12):02}-{draw.randint(1, 28):02} {draw.randint(0, 23):02}:15:00"
        )
        born = f"{draw.randint(1940, 1995)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        age = draw.choice(["Less than 25", "25 - 45", "Greater than 45"])
        lines.append(
            f'{number + 1},"made-up, {number}",{draw.choice(["Male", "Female"])},{born},{age},{priors},{jail},'
            f"{draw.choice('FM')},{draw.randint(1, 10)},{priors},{label}"
        )
        labels.append(label)
    return Shape(
        "compas.csv", "\n".join(lines) + "\n",
        {"target": {"name": "two_year_recid", "classes": [0, 1]}, "records": ROWS,
         "sex": "{type: categorical, values: [Male, Female]}", "dob": "{type: date, range: [1920-01-01, 2000-01-01]}",
         "age_cat": '{type: categorical, values: ["Less than 25", "25 - 45", "Greater than 45"]}',
         "priors_count": "{type: numeric, range: [0, 40]}",
         "c_jail_in": '{type: datetime, range: ["2013-01-01T00:00:00", "2014-12-31T00:00:00"]}',
         "c_charge_degree": "{type: categorical, values: [F, M]}",
         "decile_score": "{type: numeric, range: [1, 10], bins: 10}"},
        ignored=("priors_count_2", "name"), labels=labels,
    )  # fmt: skip


def nhanes() -> Shape:
    """NHANES: numbers written as floats, codes 7 and 9 for refused and unknown, 777 and 999 where there are more."""
    draw, labels = random.Random("nhanes"), []
    lines = ["SEQN,RIAGENDR,RIDAGEYR,DMDEDUC2,ALQ130,BMXBMI,DIQ010"]
    for number in range(ROWS):
        weight = draw.uniform(15, 60)
        label = str(1 if (weight > 40) != (draw.random() < 0.05) else 2)
        shown = "" if draw.random() < 0.05 else f"{weight:.1f}"
        drinks = draw.choice([777, 999, *range(1, 15)])
        lines.append(
            f"{93703 + number}.0,{draw.randint(1, 2)}.0,{draw.randint(20, 80)}.0,"
            f"{draw.choice([1, 2, 3, 4, 5, 7, 9])}.0,{drinks}.0,{shown},{label}.0"
        )
        labels.append(label)
    return Shape(
        "nhanes.csv", "\r\n".join(lines) + "\r\n",
        {"target": {"name": "DIQ010", "classes": ["1.0", "2.0"]}, "records": ROWS,
         "RIDAGEYR": "{type: numeric, range: [20, 80]}",
         "RIAGENDR": '{type: categorical, values: ["1.0", "2.0"]}',
         "ALQ130": "{type: numeric, range: [0, 15], missing_values: [777, 999]}",
         "DMDEDUC2": '{type: categorical, values: ["1.0", "2.0", "3.0", "4.0", "5.0"], missing_words: ["7.0", "9.0"]}',
         "BMXBMI": "{type: numeric, range: [10, 70]}"},
        ignored=("SEQN",), labels=[f"{label}.0" for label in labels],
    )  # fmt: skip


SHAPES: dict[str, Callable[[], Shape]] = {
    "adult": adult, "telco": telco, "breast-cancer": breast_cancer, "auto-mpg": auto_mpg,
    "compas": compas, "nhanes": nhanes,
}  # fmt: skip
