"""Free text is stored as people can read it: it may be the output of any program."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.storage.values import readable

STEERS = st.sampled_from(
    ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\x1bc", "\u202e", "\u2066", "\r", "\x07", "\ufeff"]
)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("\x1b[1;31mError\x1b[0m: no file", "Error: no file"),
        ("\x1b]0;pwned\x07seen", "seen"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x9b31mb", "ab"),
        ("file \u202egnp.exe", "file gnp.exe"),
        ("10%\r20%\r\nend", "10%\n20%\nend"),
        ("\x1b[31m", "\ufffd"),  # a failed trial needs a reason
        (
            "\u200f \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\tok",
            " \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\tok",
        ),
        ("", ""),
    ],
)
def test_what_steers_a_terminal_is_left_out(written: str, stored: str) -> None:
    assert readable(written) == stored


@given(st.lists(STEERS | st.text(max_size=8), max_size=12).map("".join))
def test_any_text_becomes_harmless_and_stays_so(text: str) -> None:
    stored = readable(text)
    assert all(c in "\n\t\u200c\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs") for c in stored)
    assert bool(stored) == bool(text) and readable(stored) == stored


@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp"))))
def test_plain_text_is_stored_as_it_is(text: str) -> None:
    assert readable(text) == text
