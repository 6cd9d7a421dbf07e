"""`protein eval` and `protein train` with GPT-2's weights as `transformers` writes them, its tokenizer and a text."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Run
from language_data import write_bytes_corpus
from released_weights import write_released

from protein.cli import main
from protein.trainer.language.data.batches import Batches
from protein.trainer.language.data.corpus import open_corpus
from protein.trainer.language.data.tokenizers import learn

POSITIONS, PADDING = 32, 11
TEXT = "".join(f"def add_{n}(left, right):\n    return left + right * {n}\n" for n in range(300))
QUESTION = {"ctx": "def add(left", "endings": ["right):", "return", "left + left", "xyz"], "label": 0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with `gpt2` (weights and tokenizer), `words` (text by it) and `questions.jsonl`; and their network."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "text.txt").write_text(TEXT)
    encoding = learn([TEXT.encode()], 300)
    theirs = write_released(folder / "gpt2", encoding.vocab_size + PADDING, POSITIONS)
    encoding.save(folder / "gpt2")
    line = ["data", "tokenize", str(folder / "text.txt"), "--into", str(folder / "words")]
    assert main([*line, "--tokenizer", str(folder / "gpt2")]) == 0
    (folder / "questions.jsonl").write_text(json.dumps(QUESTION))
    return folder, theirs


@pytest.fixture
def here(made: tuple[Path, Any], folder: Path) -> Any:
    """The working directory holds what `made` has made; returns their network."""
    shutil.copytree(made[0], folder, dirs_exist_ok=True)
    return made[1]


def test_it_writes_what_they_write(here: Any, run: Run) -> None:
    encoding = open_corpus("words").tokenizer
    begun = [encoding.document_token, *encoding.encode(b"def add").tolist()]
    bias = [[[n], -math.inf] for n in (encoding.document_token, *range(encoding.vocab_size, here.config.vocab_size))]
    new = POSITIONS - len(begun)
    found = here.generate(
        torch.tensor([begun]), do_sample=False, max_new_tokens=new, sequence_bias=bias, attention_mask=None
    )[0]
    expected = encoding.decode(found.tolist()[1:]).decode(errors="replace")
    answer = run.json(f"eval --checkpoint gpt2 --prompt 'def add' --tokens {new} --greedy --json")
    assert answer["env"] is None
    # The document token ends ours, and is forbidden to theirs.
    written = answer["text"].rstrip("\ufffd")
    assert written.startswith("def add") and expected.startswith(written) and len(written) > len("def add")
    assert run("eval --checkpoint gpt2 --prompt 'def add' --tokens 5").startswith("def add")


def test_its_bits_a_byte_are_theirs(here: Any, run: Run) -> None:
    corpus = open_corpus("words")
    batches = Batches(corpus.validation, sequence_length=POSITIONS, batch_rows=1, seed=0, evaluation=True)
    nats, size = 0.0, 0
    for _ in range(10):
        inputs, targets, documents = batches.next(1)
        assert documents is None, "one document: each row is a part of it"
        with torch.no_grad():
            logits = here(inputs).logits[0, :, : corpus.vocab_size].double()
        nats -= float(torch.log_softmax(logits, -1).gather(1, targets[0][:, None]).sum())
        size += int(corpus.token_bytes[targets[0].numpy()].sum())
    line = f"eval --checkpoint gpt2 --data words --tokens {10 * POSITIONS}"
    found = run.json(f"{line} --json --hellaswag questions.jsonl")
    assert found["env"] == "text/words"
    assert found["bits_per_byte"] == pytest.approx(nats / size / math.log(2), rel=2e-2)  # bfloat16 where there is
    assert 0 <= found["hellaswag"] <= 1
    said = run(line)
    assert said.startswith(f"score {found['score']:.3f}: {found['bits_per_byte']:.3f} bits per byte, ")
    assert "of text/words" in said


def test_questions_need_no_text(here: Any, run: Run) -> None:
    assert run("eval --checkpoint gpt2 --hellaswag questions.jsonl").startswith("HellaSwag: ")
    found = run.json("eval --checkpoint gpt2 --hellaswag questions.jsonl --json")
    assert found.keys() == {"env", "checkpoint", "hellaswag"} and found["hellaswag"] in (0.0, 1.0)


def test_what_does_not_fit_is_one_line(here: Any, run: Run, folder: Path) -> None:
    write_bytes_corpus(folder / "bytes", [b"abc" * 100], [b"abc" * 100])
    (folder / "empty").mkdir()
    (folder / "bare").mkdir()
    (folder / "large").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / "gpt2" / name, folder / "bare")
    settings = json.loads((folder / "gpt2" / "config.json").read_text())
    (folder / "large" / "config.json").write_text(json.dumps(settings | {"vocab_size": 1000}))
    for flags, said in (
        ("--checkpoint gpt2", "gpt2 holds weights and no text to measure them on; give --data FOLDER, tokens that"),
        ("--checkpoint gpt2/model.safetensors --prompt x", "in config.json beside it; give the folder, gpt2"),
        ("--checkpoint gpt2 --env pong", "gpt2 holds weights alone; drop --env, and give --data FOLDER"),
        ("--checkpoint gpt2 --data nowhere", "data.path 'nowhere' is no folder"),
        (
            "--checkpoint gpt2 --data bytes",
            "the text's tokens are not those of the tokenizer in gpt2: make the tokens with that of the weights,"
            " protein data tokenize FILES --tokenizer gpt2",
        ),
        (
            "--checkpoint large --data words",
            "the weights in large are for 1,000 tokens, and the text's tokenizer has 300: make the tokens with",
        ),
        ("--checkpoint gpt2 --data words --tokens 31", "31 tokens are less than one sequence"),
        ("--checkpoint bare --prompt x", "bare holds no tokenizer: put its vocab.json and merges.txt, or its"),
        (
            "--checkpoint empty --prompt x",
            "--checkpoint empty is a folder without checkpoint.safetensors, which a run writes, and without GPT-2's",
        ),
        ("--checkpoint gpt2 --episodes 3", "--episodes is for agents, and gpt2 is a language model's"),
    ):
        assert said in run.error(f"eval {flags}")
    assert run("eval --checkpoint bare --data words --prompt def --tokens 5").startswith("def")
    other = learn([b"zzyzx " * 500, TEXT[::-1].encode()], 300)
    assert other.vocab_size == open_corpus("words").vocab_size
    other.save(folder / "gpt2")
    assert "the text's tokens are not those of the tokenizer in gpt2: make the tokens" in run.error(
        "eval --checkpoint gpt2 --data words --prompt x"
    )


FLAGS = (
    "--model.init-from gpt2 --data.path words --train.batch-tokens 128 --train.optimizer adamw --eval.sample-tokens 0"
    " --train.learning-rate 0.0003 --train.embedding-learning-rate 0.0003 --train.threads 1 --eval.tokens 256"
)


def test_training_begins_with_the_weights(here: Any, run: Run, folder: Path) -> None:
    length = f"--model.sequence-length {POSITIONS}"
    run(f"train {FLAGS} {length} --train.total-tokens 128 --train.learning-rate 1e-9 --checkpoint first.safetensors")
    config = json.loads(next((folder / "runs" / "train").glob("*/config.json")).read_text())
    assert config["model"] == {
        "arch": "gpt2",
        "num_layers": 3,
        "width_ratio": 16.0,
        "head_size": 12,
        "sequence_length": POSITIONS,
        "init_from": "gpt2",
    }
    before = run.json("eval --checkpoint gpt2 --data words --json --tokens 256")["score"]
    begun = run.json("eval --checkpoint first.safetensors --json")["score"]
    assert begun == pytest.approx(before, rel=0.05), "one step with nearly no step size"
    run(f"train {FLAGS} {length} --train.total-tokens 4096 --checkpoint last.safetensors")
    assert run.json("eval --checkpoint last.safetensors --json")["score"] > before + 0.5
    run(f"train {FLAGS} --model.sequence-length 16 --train.total-tokens 128")  # its first positions


def test_a_run_that_began_with_weights_goes_on_without_them(here: Any, run: Run, folder: Path) -> None:
    run(f"train {FLAGS} --model.sequence-length 16 --train.total-tokens 2560 --train.max-seconds 0.001")
    [directory] = (folder / "runs" / "train").iterdir()
    shutil.rmtree(folder / "gpt2")
    assert "512 tokens in " in run(f"train --resume {directory} --train.total-tokens 512 --train.max-seconds 0")


def test_weights_that_do_not_fit_a_run_are_one_line(here: Any, run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "gpt2" / "model.safetensors").rename(folder / "weights")
    for flags, said in (
        (
            "--model.sequence-length 64",
            f"model.sequence_length (64) is longer than the {POSITIONS} positions of gpt2: give at most that many",
        ),
        (
            "--model.sequence-length 32 --model.num-layers 4 --model.head-size 8",
            "model.num_layers is 4, model.head_size is 8, model.width_ratio is 16.0, and the weights in gpt2 have"
            " another size: give --model.num-layers 3 --model.width-ratio 16 --model.head-size 12",
        ),
        ("--model.sequence-length 32 --data.path python", "the text's tokens are not those of the tokenizer in gpt2"),
        ("--model.sequence-length 32 --model.init-from empty", "cannot read empty/config.json: "),
        (
            "--model.sequence-length 32",
            "gpt2 has no model.safetensors: write the checkpoint again with save",
        ),
    ):
        said_by = run.error(f"train {FLAGS} {flags}")
        assert said in said_by, said_by
    assert "is longer than the 32 positions" in run.error(f"sweep --max-trials 1 {FLAGS} --model.sequence-length 64")
    assert not (folder / "runs").exists()
