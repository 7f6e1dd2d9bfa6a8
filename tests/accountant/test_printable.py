"""What others wrote moves no cursor, whatever it holds."""

from __future__ import annotations

import json
import sys
import unicodedata

from dpserve_verify.system.printable import printable, printable_json, printable_lines


def test_every_code_point_is_itself_or_spelled_out():
    for number in range(sys.maxunicode + 1):
        one = chr(number)
        found = printable(one)
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            assert (found.isascii(), found.isprintable(), found[0]) == (True, True, "\\"), hex(number)
        else:
            assert found == one, hex(number)


def test_lines_stay_where_they_are_asked_for():
    text = "a\tb\nc\r\n\x1b[2J\u202ed\x9b1m \u00a0\u00e9"
    assert printable_lines(text) == "a\tb\nc\\r\n\\x1b[2J\\u202ed\\x9b1m \u00a0\u00e9"
    assert printable(text) == "a\\tb\\nc\\r\\n\\x1b[2J\\u202ed\\x9b1m \u00a0\u00e9"


def test_json_says_the_same():
    body = {"a\u202e": ["\x9b1m", "\U000e0041", "\x1b[2J\n", "\u00e9\u00a0", "\ud800"]}
    text = printable_json(json.dumps(body, indent=2, ensure_ascii=False))
    assert json.loads(text) == body
    assert printable_lines(text) == text
