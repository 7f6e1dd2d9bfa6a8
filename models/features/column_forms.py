"""The forms of a column: in which ways people write the cells of a kind, the plainest first. A search over them, scored
by the law of columns, says how a file seems to be written; a form that is added here is then found. Units, and words
for yes, no or a missing value, are declared beside each of them.
"""

from __future__ import annotations

from models.features.written import Written

# Days; a schema may have other patterns.
DATES = (
    "YYYY-MM-DD", "YYYY/MM/DD", "YYYY.MM.DD", "YYYYMMDD", "DD.MM.YYYY", "DD/MM/YYYY", "DD-MM-YYYY", "MM/DD/YYYY",
    "MM-DD-YYYY", "DD.MM.YY", "DD/MM/YY", "DD-MM-YY", "MM/DD/YY", "MM-DD-YY", "DD-MON-YYYY", "DD MON YYYY",
    "DD/MON/YYYY", "DD. MON YYYY", "DDMONYYYY", "MON DD, YYYY", "MON DD YYYY", "DD-MON-YY", "DD MON YY", "YYYY-MON-DD",
    "YYYY. MON DD.", "YYYY年MM月DD日", "DDMMYYYY", "MMDDYYYY",
)  # fmt: skip
FIRST_YEAR = 1950  # of the hundred that two digits stand for, until a person says it
LIKELY_YEARS = 1600, 2400  # of days in tables
NUMBERS = (
    Written(), Written(decimal=","), Written(decimal="either"),
    Written(thousands=","), Written(decimal=",", thousands="."),
    Written(thousands=" "), Written(decimal=",", thousands=" "),
    Written(thousands="'"), Written(decimal=",", thousands="'"),
)  # fmt: skip
