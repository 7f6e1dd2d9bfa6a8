"""Tables in every alphabet: which encodings a schema takes, what a draft proposes, and the whole way of three."""

from __future__ import annotations

import random

import pytest
import yaml
from table_story import filled_in, stranger_in

from accountant.errors import SchemaError
from models.features.written import Form, encoding_named, list_encodings
from training.datasets.drafts.proposal import SchemaProposal
from training.datasets.file_check import check_file
from training.datasets.packing import pack
from training.rows.schema.schema import parse_schema
from training.rows.sources.encoding import describe_readings, list_readings

WORDS = {  # city; man, woman; how much they earn; the columns
    "Russian": "Москва Казань Тула|мужской женский|низкий высокий|Город Пол Доход",
    "Chinese": "北京 上海 广州|男 女|低 高|城市 性别 收入",
    "Japanese": "東京 大阪 京都|男性 女性|低い 高い|都市 性別 収入",
    "Korean": "서울 부산 대구|남자 여자|낮음 높음|도시 성별 소득",
    "Arabic": "القاهرة بغداد دمشق|ذكر أنثى|منخفض مرتفع|المدينة الجنس الدخل",
    "Greek": "Αθήνα Πάτρα Βόλος|άνδρας γυναίκα|χαμηλό υψηλό|Πόλη Φύλο Εισόδημα",
    "Hebrew": "ירושלים חיפה אילת|זכר נקבה|נמוך גבוה|עיר מין הכנסה",
    "Turkish": "İstanbul Eskişehir Muğla|erkek kadın|düşük yüksek|Şehir Cinsiyet Gelir",
    "Polish": "Łódź Kraków Gdańsk|mężczyzna kobieta|niski wysoki|Miasto Płeć Dochód",
    "German": "Köln München Düsseldorf|männlich weiblich|niedrig hoch|Stadt Geschlecht Größe",
    "French": "Besançon Orléans Nîmes|homme femme|très-bas élevé|Ville Sexe Société",
    "Thai": "กรุงเทพ เชียงใหม่ ภูเก็ต|ชาย หญิง|ต่ำ สูง|เมือง เพศ รายได้",
}
WRITTEN = [
    *(("Russian", each) for each in ("cp1251", "koi8-r", "iso-8859-5", "cp866", "mac-cyrillic", "utf-16")),
    *(("Chinese", each) for each in ("gb18030", "utf-16-le", "utf-8")),
    *(("Japanese", each) for each in ("shift_jis", "euc-jp")),
    ("Korean", "euc-kr"), ("Arabic", "cp1256"), ("Greek", "cp1253"), ("Hebrew", "cp1255"), ("Turkish", "cp1254"),
    ("Polish", "cp1250"), ("Polish", "iso-8859-2"), ("Thai", "cp874"),
    *(("German", each) for each in ("cp1252", "cp850")), *(("French", each) for each in ("cp1252", "mac-roman")),
]  # fmt: skip


def table(language, rows=60):
    """The header's names, and rows of which the first column decides the last."""
    cities, sexes, earnings, names = (part.split() for part in WORDS[language].split("|"))
    draw = random.Random(language)
    lines = [[draw.choice(cities), draw.choice(sexes)] for _ in range(rows)]
    return names, [[*line, earnings[line[0] == cities[0]]] for line in lines], (cities, sexes, earnings)


def write(path, names, rows, encoding):
    path.write_bytes("".join(",".join(line) + "\n" for line in (names, *rows)).encode(encoding))
    return path


def schema_of(names, parts, encoding):
    kinds = ({"type": "categorical", "values": part} for part in parts[:2])
    body = {
        "target": {"name": names[2], "classes": parts[2]},
        "records": 60,
        "features": dict(zip(names, kinds, strict=False)),
        "format": {"encoding": encoding},
    }
    return parse_schema(yaml.safe_dump(body, allow_unicode=True, sort_keys=False).encode())


@pytest.mark.parametrize(("language", "encoding"), WRITTEN)
def test_a_draft_proposes_the_alphabet_and_is_written_in_its_letters(tmp_path, language, encoding):
    names, rows, _ = table(language)
    proposal = SchemaProposal.of_file(write(tmp_path / "rows.csv", names, rows, encoding))
    draft = proposal.to_yaml("rows.csv", looked=True)
    assert list(proposal.features) == names
    assert all(f'  "{name}": ' in draft for name in names)
    assert "\\u" not in draft
    certain = encoding.startswith("utf")
    assert (proposal.reading == "") == certain
    assert certain or names[2] in proposal.reading.split("\n")[0] or rows[0][0] in proposal.reading.split("\n")[0]
    assert "utf-8" in encoding or proposal.format["encoding"] == encoding
    assert rows[0][0] not in draft  # cells are the steward's alone to see


@pytest.mark.parametrize("encoding", list_encodings())
def test_each_encoding_that_python_names_reads_as_it_writes(tmp_path, encoding):
    """The language that it can write, or else ASCII: registered and checked alike."""
    for language in (*WORDS, None):
        names, rows, parts = table(language or "Korean", 40)
        if language is None:
            names, rows, parts = (
                ["a", "b", "c"],
                [["x", "y", "no"], ["z", "y", "yes"]],
                (["x", "z"], ["y"], ["no", "yes"]),
            )
        try:
            file = write(tmp_path / "rows.csv", names, rows, encoding)
        except UnicodeEncodeError:
            continue
        schema = schema_of(names, parts, encoding)
        assert check_file(schema, file).problems == []
        packed = pack(file, schema)
        codes = [[feature.values.index(row[at]) for row in rows] for at, feature in enumerate(schema.features)]
        assert (packed.bins == codes).all()
        assert packed.labels.tolist() == [parts[2].index(row[2]) for row in rows]
        return
    raise AssertionError("nothing can be written in it")


def test_any_name_that_python_has_for_it_is_taken_and_no_other(tmp_path):
    assert [*map(encoding_named, ("windows-1251", "Latin1", "UTF8", "utf_8_sig", "sjis", "x-mac-cyrillic"[2:]))] == [
        "cp1251", "latin-1", "utf-8", "utf-8", "shift_jis", "mac-cyrillic",
    ]  # fmt: skip
    assert Form(encoding="ISO-8859-1") == Form(encoding="latin-1")
    assert len(list_encodings()) > 80
    for none in (
        "",
        "cp037",
        "utf-7",
        "hex",
        "rot13",
        "idna",
        "punycode",
        "undefined",
        "unicode_escape",
        "x",
        "a\0b",
        "é",
    ):
        with pytest.raises(ValueError, match="is no encoding of tables that Python names"):
            encoding_named(none)
        with pytest.raises(SchemaError, match="encoding"):
            schema_of(["a", "b", "c"], (["x"], ["y"], ["no", "yes"]), none)


def test_a_wrong_encoding_is_refused_with_the_likely_one_and_a_declared_one_that_fits_is_believed(tmp_path):
    names, rows, parts = table("Russian")
    file = write(tmp_path / "rows.csv", names, rows, "cp1251")
    assert check_file(schema_of(names, parts, "utf-8"), file).problems[0].remedy == (
        "say `encoding: cp1251` under `format`"
    )
    names, rows, parts = table("Turkish")
    few = [row for row in rows if row[2] == "yüksek"]  # whose letters say little of the language
    file = write(tmp_path / "few.csv", ["a", "b", "c"], few, "iso8859-9")
    assert check_file(schema_of(["a", "b", "c"], parts, "iso8859-9"), file).problems == []
    write(file, ["a", "b", "c"], few, "utf-8")
    assert check_file(schema_of(["a", "b", "c"], parts, "iso8859-9"), file).problems[0].found == (
        "text that is not ISO8859-9 (read here as utf-8)"
    )
    plain = write(tmp_path / "plain.csv", ["a", "b", "c"], [["x", "y", "no"], ["x", "y", "yes"]], "ascii")
    assert check_file(schema_of(["a", "b", "c"], (["x"], ["y"], ["no", "yes"]), "cp1252"), plain).problems == []


def test_where_no_word_tells_the_likely_ones_are_shown_side_by_side(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"a,b\n" + "1,Größe\n2,25 °C\n3,5 €\n".encode("cp1252"))
    readings = list_readings(tmp_path / "rows.csv")
    assert (readings[0].encoding, readings[0].words) == ("cp1252", ("Größe", "°C", "€"))
    shown = describe_readings(readings)
    assert shown.startswith("It is read here in cp1252: Größe, °C, €\n  or, in ")
    (tmp_path / "rows.csv").write_bytes(b"a,b\n1,\x81\xff\n")
    assert list_readings(tmp_path / "rows.csv")[-1].encoding == "latin-1"


def test_a_draft_without_data_names_it_where_bytes_are_not_utf_8(tmp_path, monkeypatch, capsys):
    person = stranger_in(tmp_path, monkeypatch, capsys)
    names, rows, _ = table("Russian")
    file = write(tmp_path / "rows.csv", names, rows, "cp1251")
    assert (
        "`dpserve schema draft rows.csv --data` proposes the encoding"
        in person.type("schema", "draft", file, code=2).err
    )
    write(file, ["a", "b", "c"], rows, "cp1251")
    assert "with --data its encoding is proposed" in person.type("schema", "draft", file).err
    printed = person.type("schema", "draft", file, "--data")
    assert "cp1251: " in printed.err
    assert rows[0][0] in printed.err
    assert rows[0][0] not in printed.out


@pytest.mark.parametrize(
    ("language", "encoding"), [("Russian", "cp1251"), ("Chinese", "gb18030"), ("Arabic", "cp1256")]
)
def test_from_upload_to_prediction_picture_and_page(tmp_path, monkeypatch, capsys, language, encoding):
    person = stranger_in(tmp_path, monkeypatch, capsys)
    names, rows, (cities, sexes, earnings) = table(language, 300)
    file = write(tmp_path / "rows.csv", names, rows, encoding)
    values = {
        name: f"{{type: categorical, values: {part}}}" for name, part in zip(names, (cities, sexes), strict=False)
    }
    answers = {"target": {"name": names[2], "classes": earnings}, "records": 300, **values}
    labels = person.learn(file, filled_in(person.draft(file, "--data"), answers))
    assert sum(label == row[2] for label, row in zip(labels, rows, strict=True)) > 280
    person.type("model", "explain", "rows", "--out", tmp_path / "rows.html")
    page = (tmp_path / "rows.html").read_text("utf-8")
    assert all(word in page for word in (names[0], cities[0]))


def test_a_row_of_another_encoding_is_named_and_the_others_keep_theirs(tmp_path):
    """Declared as the page of that row, each other letter beyond ASCII would be two."""
    rows = [f"{'München' if at % 2 else 'Ulm'},{'no' if at % 3 else 'yes'}".encode() for at in range(40)]
    rows[8] = "Köln,no".encode("cp1252")
    (tmp_path / "rows.csv").write_bytes(b"\n".join([b"a,y", *rows, b""]))
    text = "target: {name: y, classes: [no, yes]}\nrecords: 40\nfeatures:\n"
    schema = parse_schema(f"{text}  a: {{type: categorical, values: [München, Ulm, Köln]}}\n".encode())
    [problem] = check_file(schema, tmp_path / "rows.csv").problems
    assert (problem.rows, problem.remedy) == ([10], "write these rows in UTF-8 as well")
    rows[8] = "Köln,no".encode()
    (tmp_path / "rows.csv").write_bytes(b"\n".join([b"a,y", *rows, b""]))
    assert check_file(schema, tmp_path / "rows.csv").problems == []


def test_rows_that_are_not_in_the_declared_encoding_of_the_others_are_named(tmp_path):
    rows = "".join(f"{at},{word}\n" for at, word in enumerate(["no", "yes"] * 20))
    path, schema = tmp_path / "rows.csv", {"target": {"name": "y", "classes": ["no", "yes"]}, "records": 40}
    path.write_bytes(f"a,y\n{rows}".encode("utf-16").replace("7".encode("utf-16-le"), b"\x00\xd8", 1))
    schema |= {"features": {"a": {"type": "numeric", "range": [0, 40]}}, "format": {"encoding": "utf-16"}}
    problem, *others = check_file(parse_schema(yaml.safe_dump(schema).encode()), path).problems
    assert (problem.found, problem.rows) == ("letters that are not UTF-16, as those of the other rows are", [9])
    assert problem.remedy == "write these rows in UTF-16 as well"  # and not to say what is said
    assert all("encoding" not in remedy.say for each in others for remedy in each.remedies)
