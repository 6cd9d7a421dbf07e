"""How numbers and lines of logs are read."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.run import reports
from protein.run.reports import Commas, PatternReader, from_json, number_of


def read(
    pattern: str, *lines: str, steps: str = "", means: reports.Comma = ""
) -> list[tuple[int | None, float | None]]:
    """Returns the steps and scores in lines; None: a score that is no number."""
    reader = PatternReader(pattern, steps, Commas(means), lambda *_: None)
    found = [said for line in lines if (said := reader.read(line.encode())) is not None]
    return [(said.steps, None if said.score is None or math.isnan(said.score) else said.score) for said in found]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5", 0.5),
        ("-.5e-3,", -0.0005),
        ("1_000", 1000.0),
        ("87.5%", 87.5),
        ("87.5%)", 87.5),
        ("inf", math.inf),
        # Commas that can only be one of both.
        ("-12,345.5", -12345.5),
        ("+1,234,567%", 1234567.0),
        ("1.234,5", 1234.5),
        ("1.234.567", 1234567.0),
        ("0,512", 0.512),
        ("-0,512", -0.512),
        (",5", 0.5),
        ("1234,567", 1234.567),
        ("12,34", 12.34),
        ("3,4e-1", 0.34),
        # Those that may be both, and what is no number.
        ("1,234", None),
        ("12,345e-3", None),
        ("1,234,5", None),
        ("0.123,456", None),
        ("1,234.567,890", None),
        ("1,2,3", None),
        ("0.5s", None),
        ("n/a", None),
        ("", None),
        # Signs that look like a minus, and those that stand between thousands.
        ("\u22123.25", -3.25),
        ("1e\u22122", 0.01),
        ("\u20130.5", -0.5),
        ("3\u20135", None),
        ("1\u202f234,5", 1234.5),
        ("1'234.5", 1234.5),
        # Factors.
        ("1.2k", 1200.0),
        ("1,2k", 1200.0),
        ("3M", 3e6),
        ("2.5B", 2.5e9),
        ("3m", None),
        ("k", None),
        # As libraries print a number.
        ("tensor(0.5)", 0.5),
        ("tensor(-0.5000, device='cuda:0', grad_fn=<NllLossBackward0>)", -0.5),
        ("tensor([[0.5]], dtype=torch.float64)", 0.5),
        ("np.float64(0.5)", 0.5),
        ("array([1.5], dtype=float32)", 1.5),
        ("Array(0.5, dtype=float32)", 0.5),
        ("Decimal('0.5')", 0.5),
        ("np.float32(0.5)},", 0.5),
        ("tensor([0.5])}]", 0.5),
        ("'0.5'}", 0.5),
        ("0.5\x1b(B\x1b[m", 0.5),
        ("\x1b]8;;http://host\x1b\\0.5\x1b]8;;\x07", 0.5),
        ("0.5\b\b\b", 0.5),
        ("<tf.Tensor: shape=(), dtype=float32, numpy=0.5>", 0.5),
        ("[0.5]", 0.5),
        ("(0.5,)", 0.5),
        ("[0.5, 0.7]", None),
        ("[0,5]", None),
        ("tensor([0.5, 0.7])", None),
        ("log(0.5)", None),
    ],
)
def test_a_number_is_read_as_programs_print_it(text: str, number: float | None) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(
    ("texts", "last"),
    [
        (("3,512", "0,912", "1,234"), 1.234),
        (("1,512.5", "1,234"), 1234.0),
        (("0.5", "1,234"), 1234.0),
        (("3,512", "1,234"), None),
        (("0,5", "0.5", "1,234"), None),  # it shows both
        (("0.5", "0,5"), None),  # two numbers, or a decimal comma?
        (("0,5", "1.234"), None),  # of thousands?
        (("0,5", "1.5"), 1.5),
        (("1.234",), 1.234),
    ],
)
def test_all_numbers_of_a_log_decide_what_its_commas_are(texts: tuple[str, ...], last: float | None) -> None:
    *_, (_, found) = read(r"loss: (\S+)", *(f"12:30:01,512 loss: {text}," for text in texts))
    assert found == last


def test_what_commas_are_can_be_said() -> None:
    assert read(r"(\S+)", "1,234", "0,5", "0.5", means="decimal") == [(None, 1.234), (None, 0.5), (None, 0.5)]
    assert read(r"(\S+)", "1,234", "0,5", means="thousands") == [(None, 1234.0), (None, None)]


@given(st.lists(st.floats(-1e6, 1e6).map(lambda number: round(number, 3))), st.booleans())
def test_numbers_are_read_rightly_or_not_at_all_and_rightly_once_one_is_sure(
    numbers: list[float], has_decimal_commas: bool
) -> None:
    swap = str.maketrans(",.", ".,") if has_decimal_commas else {}
    is_sure = False
    for number, (_, got) in zip(
        numbers, read(r"(\S+)", *(f"{number:,.3f}".translate(swap) for number in numbers)), strict=True
    ):
        is_sure |= abs(number) >= 1000 or abs(number) < 1
        assert got == number or (got is None and not is_sure)


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        (r"reward: (\S+)", "reward: tensor(0.5, device='cuda:0') at 3", (None, 0.5)),
        (r"reward: (\S+)", "reward: [0.5, 0.75]", (None, None)),
        (r"reward: (-?[\d.]+)", "reward: \u22123.25", (None, -3.25)),
        ("reward: (\u2212?[\\d.]+)", "reward: \u22123.25", (None, -3.25)),
        (r"reward: (\S+)", "reward: 1\u00a0234,5", (None, 1234.5)),
        (r"güte: (-?[\d.]+)", "güte: \u22123.25", (None, -3.25)),
        (r"step=(?P<steps>\S+) r=(?P<score>\S+)", "step=1.2k r=\x1b[32m87.5%\x1b[0m", (1200, 87.5)),
        (r"r=(\d)", "r=12", (None, 12.0)),
        (r"\((\S+)", "(0.5)", (None, 0.5)),
        (r"loss: ([\d.]+)", "loss: 1.2e-03", (None, 0.0012)),
        (r"r.*?([\d.]+)", "r: -12.5", (None, -12.5)),
        (r"nll: -([\d.]+)", "nll: -12.5", (None, 12.5)),  # it asks for the number without its sign
        (r"nll: -(?P<score>[\d.]+)", "nll: -12.5", (None, 12.5)),
        (r"a-(?:b|c) .*?([\d.]+)", "a-b = -1", (None, -1.0)),
        (r"r.*(\d)", "r: 12.5", (None, 12.5)),
        (r"r=([\d.]+)", "r=1,234.5 at 3", (None, 1234.5)),
        (r"r=([\d.]+)", "r=1.2k, 3", (None, 1200.0)),
        (r"r=([\d.]+)k", "r=1.2k", (None, 1.2)),
        (r"step=(?P<steps>\d+)\S* r=(?P<score>\d+)", "step=1.2e3 r=1e3", (1200, 1000.0)),
        # What stands beside a number and is none of it.
        (r"r=\[([\d.]+)", "r=[100,200]", (None, 100.0)),
        (r"r=([\d.]+)", "r=0.91,0.88", (None, 0.91)),
        (r"^\d+,(\d+)", "12,345,678", (None, 345.0)),
        (r"^(\d+),", "100,200", (None, 100.0)),
        (r"^(\d+),(\d+)", "100,200", (None, 100.0)),
        (r"^(?P<steps>\d+),(?P<score>\d+)", "100,200", (100, 200.0)),
        (r"fold-(\d)", "fold-1", (None, 1.0)),
        (r"1-([\d.]+)", "1-0.5", (None, 0.5)),
        (r"\+/-(\d)", "9 +/-2", (None, 2.0)),
        (r"v(\d)", "v2.x", (None, 2.0)),
        (r"top(\d)", "top5e", (None, 5.0)),
    ],
)
def test_the_number_is_found_in_a_line(pattern: str, line: str, found: tuple[int | None, float | None]) -> None:
    assert read(pattern, line) == [found]


@given(
    st.floats(-1e6, 1e6),
    st.sampled_from(["{}", "{:.3f}", "{:.2e}", "{:,.1f}", "{:+.4f}", "{:.0f}"]),
    st.sampled_from(
        [
            *(r"r: ([\d.]+)", r"r: (\d+)", r"r: (-?\d+)", r"r: [-+]?(\d+?)", r"r: (?P<score>-?\d+\.?\d*).*"),
            *(r"r.*?([\d.]+)", r"r.*?(\d+)", r"r.*(\d)", r"r.*?(\d\.\d)", r"r.*([\d.]{2})"),
        ]
    ),
    st.sampled_from(["", ",", " at b", "}", "%", " | x"]),
)
def test_an_expression_that_finds_a_part_of_a_number_gets_the_whole(
    number: float, form: str, pattern: str, after: str
) -> None:
    text = form.format(number)
    for _, got in read(pattern, f"r: {text}{after}"):
        assert got in (float(text.replace(",", "")), None if "," in text else math.nan)


def test_steps_are_whole_so_their_commas_stand_between_thousands() -> None:
    for steps in (r"step (\S+)", r"step (\d+)"):
        assert read(r"r=(\S+)", "step 1,000 r=0.5", "step 2,000 r=0,5", steps=steps) == [(1000, 0.5), (2000, None)]
    assert read(r",(\d+)$", "100,200", steps=r"^(\d+)") == [(100, 200.0)], "two numbers"


def test_a_score_far_behind_in_a_line_is_found() -> None:
    line = json.dumps({"config": {f"k{number}": number for number in range(100_000)}, "reward": 31.5})
    assert len(line) > 1 << 20
    assert read('"reward": ([^,}]+)', line) == [(None, 31.5)]
    assert read('^.*"reward": (?P<score>[^,}]+)}$', line) == [(None, 31.5)]


def test_a_search_that_takes_too_long_is_cut_and_this_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "SEARCH_SECONDS", 0.0)
    said: list[str] = []
    reader = PatternReader(r"reward: (\S+)", "", Commas(), lambda _, line: said.append(line))
    assert reader.read(b"x" * 12_000 + b" reward: 1") is None
    assert "a line of 12,010 characters" in said[0] and "the first 10,000 of them" in said[0]
    assert reader.read(b"x" * 9_990 + b" reward: 1" + b"2" * 9_000) is None, "half a number is none"
    found = reader.read(b"reward: 1" + b" " * 12_000)
    assert found is not None and found.score == 1.0


@pytest.mark.parametrize(
    ("line", "score"),
    [
        ('{"score": 0.5}', 0.5),
        ('  {"score": "0.5"}\r', 0.5),
        ('{"score": [0.5]}', 0.5),
        ('{"score": "tensor(0.5)"}', 0.5),
        ('{"score": {"a": 1}}', None),
        ('INFO:root:{"score": 0.5}', 0.5),
        ('INFO {"score": 0.5}', 0.5),
        ('[rank0]: {"score": 0.5}', 0.5),
        ('[1,0]<stdout>:{"score": 0.5}', 0.5),
        ('[default0]:{"score": 0.5}', 0.5),
        ('0: {"score": 0.5}', 0.5),
        ('(RayTrainWorker pid=7, ip=10.0.0.1) {"score": 0.5}', 0.5),
        ('2026-01-02 12:30:00,123 - root - INFO - {"score": 0.5}', 0.5),
        ('2026-01-02T12:30:00.123Z [INFO] train.py:12 {"score": 0.5}', 0.5),
        ('2026-01-02 12:30:00.123 | INFO     | __main__:<module>:12 - {"score": 0.5}', 0.5),
        ('[2026-01-02 12:30:00,123][__main__][INFO] - {"score": 0.5}', 0.5),
        ('I0102 12:30:00.123456 140 train.py:12] {"score": 0.5}', 0.5),
        ('worker-0  | {"score": 0.5}', 0.5),
        ('\x1b[32mINFO\x1b[0m: {"score": 0.5}\x1b[0m', 0.5),
        ('root - INFO - {"score": 0.5}', 0.5),
        ('2026-01-02 12:30:00,123 train.run  WARNING  {"score": 0.5}', 0.5),
    ],
)
def test_a_json_line_is_read_behind_what_loggers_write(line: str, score: float | None) -> None:
    found = from_json(line.encode())
    assert found is not None and found.score is not None
    assert found.score == score or (score is None and math.isnan(found.score))


@pytest.mark.parametrize(
    "line",
    [
        'best so far: {"score": 0.5}',
        'INFO:root:best so far {"score": 0.5}',
        'INFO best: {"score": 0.5}',
        'best of all INFO {"score": 0.5}',
        'config = {"score": "mse"}',
        'epoch 3: {"score": 0.5}',
        'INFO:root:{"score": 0.5} was good',
        'INFO:root:{"loss": 0.5}',
        "[" * 400 + '{"score": 0.5}',
    ],
)
def test_a_report_that_a_program_quotes_in_a_sentence_is_none(line: str) -> None:
    assert from_json(line.encode()) is None


@pytest.mark.parametrize(
    ("pattern", "line", "remedy"),
    [
        (r"loss: (\S+)", "loss: 0.512s", 0.512),
        (r"loss: (\S+)", "loss: ~-1e-3", -0.001),
        (r"e(?P<steps>\d) (?P<score>\S+)", "e3 loss=0.5", 0.5),
        (r"loss: (\S+)", "loss: none", None),
        (r"loss: ((a|n)\S+)", "loss: n5", None),
    ],
)
def test_what_is_no_number_is_said_so_with_what_would_read_it(pattern: str, line: str, remedy: float | None) -> None:
    reader = PatternReader(pattern, "", Commas(), lambda *_: None)
    said = reader.read(line.encode())
    assert said is not None and said.wrong.startswith("which is no number")
    better = re.search("; --score-regex '(.*)' would read (.*)", said.wrong)
    assert (better is None) == (remedy is None)
    if better is not None:
        assert read(better[1], line)[0][1] == float(better[2]) == remedy


@given(
    st.lists(st.sampled_from(["1", "a.", "[", "]", "- ", "INFO", ":", " ", "<", "(", "|"]), max_size=280).map("".join)
)
def test_what_stands_before_a_line_is_looked_at_in_an_instant(prefix: str) -> None:
    """Not with the power of its length: this would not end."""
    from_json(f'{prefix}{{"score": 1}}'.encode())
