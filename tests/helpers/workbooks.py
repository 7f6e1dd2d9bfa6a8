"""Workbooks (.xlsx, .ods) as spreadsheets write them: texts, numbers, truth values, days, errors."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from xml.sax.saxutils import escape

HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
STYLES = f"""<styleSheet xmlns="{MAIN}">
<numFmts count="2"><numFmt numFmtId="164"
formatCode="0.0&quot; %&quot;"/><numFmt numFmtId="165" formatCode="0.0 %"/></numFmts>
<fonts count="1"><font/></fonts><fills count="1"><fill/></fills>
<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="7"><xf numFmtId="0"/>
<xf numFmtId="14" applyNumberFormat="1"/><xf numFmtId="22" applyNumberFormat="1"/>
<xf numFmtId="21" applyNumberFormat="1"/>
<xf numFmtId="10"/><xf numFmtId="165"/><xf numFmtId="164"/>
</cellXfs></styleSheet>"""
PER_CENT, OWN_PER_CENT, NO_PER_CENT = 4, 5, 6  # styles of numbers: the last has the sign as a text alone
EPOCH = datetime(1899, 12, 30)


@dataclass(frozen=True)
class Styled:
    """A number in a style."""

    number: float
    style: int = PER_CENT


@dataclass(frozen=True)
class Formula:
    """A formula, with its value or, as programs write it that compute none, without."""

    value: float | None = None


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]]) -> Path:
    """Write sheets of rows. A text that begins with # is an error of the spreadsheet's; None an empty cell."""
    names = [*sheets]
    listed = "".join(f'<sheet name="{escape(n)}" sheetId="{at}" r:id="r{at}"/>' for at, n in enumerate(names, 1))
    parts = "".join(
        f'<Relationship Id="r{at}" Type="{RELATED}/worksheet" Target="worksheets/sheet{at}.xml"/>'
        for at in range(1, len(names) + 1)
    )
    types = "".join(
        f'<Override PartName="/xl/worksheets/sheet{at}.xml" ContentType="{KIND}.worksheet+xml"/>'
        for at in range(1, len(names) + 1)
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{KIND}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{KIND}.styles+xml"/>'
        f"{types}</Types>",
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{RELATED}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATED}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{parts}<Relationship Id="s" '
        f'Type="{RELATED}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": STYLES,
    }
    for at, name in enumerate(names, 1):
        rows = "".join(
            f'<row r="{row}">{"".join(_cell(row, place, cell) for place, cell in enumerate(cells))}</row>'
            for row, cells in enumerate(sheets[name], 1)
        )
        files[f"xl/worksheets/sheet{at}.xml"] = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, HEAD + text)
    return path


def _cell(row: int, place: int, cell: object) -> str:
    where = f'r="{chr(65 + place)}{row}"'
    if cell is None:
        return ""
    if isinstance(cell, Styled):
        return f'<c {where} s="{cell.style}"><v>{cell.number!r}</v></c>'
    if isinstance(cell, Formula):
        return f"<c {where}><f>1+1</f>{'<v></v>' if cell.value is None else f'<v>{cell.value!r}</v>'}</c>"
    if isinstance(cell, bool):
        return f'<c {where} t="b"><v>{int(cell)}</v></c>'
    if isinstance(cell, datetime):
        return f'<c {where} s="2"><v>{(cell - EPOCH).total_seconds() / 86400!r}</v></c>'
    if isinstance(cell, date):
        return f'<c {where} s="1"><v>{(datetime.combine(cell, time()) - EPOCH).days}</v></c>'
    if isinstance(cell, time):
        seconds = cell.hour * 3600 + cell.minute * 60 + cell.second
        return f'<c {where} s="3"><v>{seconds / 86400!r}</v></c>'
    if isinstance(cell, int | float):
        return f"<c {where}><v>{cell!r}</v></c>"
    if str(cell).startswith("#"):
        return f'<c {where} t="e"><v>{cell}</v></c>'
    return f'<c {where} t="inlineStr"><is><t xml:space="preserve">{escape(str(cell))}</t></is></c>'


OFFICE = "urn:oasis:names:tc:opendocument:xmlns"


def write_ods(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]], rows_at_once: int = 1) -> Path:
    """Write sheets of rows as OpenDocument; the last row of each stands there so many times, written once."""
    tables = []
    for name, rows in sheets.items():
        written = [
            f'<table:table-row table:number-rows-repeated="{rows_at_once if at == len(rows) else 1}">'
            f"{''.join(map(_ods_cell, cells))}</table:table-row>"
            for at, cells in enumerate(rows, 1)
        ]
        tables.append(f'<table:table table:name="{escape(name)}">{"".join(written)}</table:table>')
    spaces = " ".join(f'xmlns:{short}="{OFFICE}:{short}:1.0"' for short in ("office", "table", "text"))
    content = f"<office:document-content {spaces}><office:body><office:spreadsheet>{''.join(tables)}"
    content += "</office:spreadsheet></office:body></office:document-content>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        kind = "application/vnd.oasis.opendocument.spreadsheet"
        archive.writestr("mimetype", kind, zipfile.ZIP_STORED)
        manifest = f'<m:manifest xmlns:m="{OFFICE}:manifest:1.0"><m:file-entry m:full-path="/" m:media-type="{kind}"/>'
        archive.writestr("META-INF/manifest.xml", HEAD + manifest + "</m:manifest>")
        archive.writestr("content.xml", HEAD + content)
    return path


def _ods_cell(cell: object) -> str:
    if cell is None or cell == "":
        return "<table:table-cell/>"
    if isinstance(cell, Styled):
        return f'<table:table-cell office:value-type="percentage" office:value="{cell.number!r}"/>'
    if isinstance(cell, Formula):
        value = "" if cell.value is None else f' office:value-type="float" office:value="{cell.value!r}"'
        return f'<table:table-cell table:formula="of:=1+1"{value}/>'
    if isinstance(cell, bool):
        return f'<table:table-cell office:value-type="boolean" office:boolean-value="{str(cell).lower()}"/>'
    if isinstance(cell, date):
        return f'<table:table-cell office:value-type="date" office:date-value="{cell.isoformat()}"/>'
    if isinstance(cell, time):
        return f'<table:table-cell office:value-type="time" office:time-value="{cell:PT%HH%MM%SS}"/>'
    if isinstance(cell, int | float):
        return f'<table:table-cell office:value-type="float" office:value="{cell!r}"/>'
    lines = "".join(f"<text:p>{escape(line)}</text:p>" for line in str(cell).split("\n"))
    return f'<table:table-cell office:value-type="string">{lines}</table:table-cell>'
