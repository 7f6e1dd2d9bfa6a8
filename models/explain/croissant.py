"""A dataset as catalogues describe it, in Croissant.

Its schema alone is said, which is public: no count, no digest, no place where rows lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "isLiveDataset": "cr:isLiveDataset",
    "recordSet": "cr:recordSet",
    "source": "cr:source",
}
TYPES = {
    "numeric": "sc:Float",
    "boolean": "sc:Boolean",
    "date": "sc:Date",
    "datetime": "sc:DateTime",
    "time": "sc:Time",
}
LISTED = 50  # values of a category that are named before the rest is counted
GUARDED = (
    "The rows are private: nobody is given them. What is published about them is noisy, and stands in a ledger of what "
    "privacy it cost."
)


def croissant_of(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a dataset in Croissant 1.0 by what `dpserve dataset show --json` says of its columns. The file that is
    named is one that only its steward has.
    """
    name = dataset["name"]
    table = f"{name}-rows"
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"rows/column-{at}",  # which may hold no space
            "name": column["name"],
            "description": _column_words(column),
            "dataType": TYPES.get(column["type"], "sc:Text"),
            "source": {"fileObject": {"@id": table}, "extract": {"column": column["name"]}},
        }
        for at, column in enumerate(dataset["columns"])
    ]
    file = {
        "@type": "cr:FileObject",
        "@id": table,
        "name": table,
        "description": GUARDED,
        "contentUrl": f"{name}.parquet",
        "encodingFormat": "application/x-parquet",
    }
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": f"Private rows; the unit of privacy is a {dataset['unit']}. {GUARDED}",
        "isLiveDataset": True,
        "rai:personalSensitiveInformation": GUARDED,
        "distribution": [file],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields}],
    }


def _column_words(column: Mapping[str, Any]) -> str:
    said = [column["role"]]
    if column.get("range"):
        said.append("from {} to {}".format(*column["range"]))
    if "values" in column:
        rest = len(column["values"]) - LISTED
        said.append("one of: " + ", ".join(column["values"][:LISTED]) + (f" and {rest} more" if rest > 0 else ""))
    return "; ".join(said)
