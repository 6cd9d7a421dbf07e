"""`/api/play`: what the page gets to play a game, and what it is told where it cannot."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Served, refused
from policy_files import make_checkpoint
from sample_trials import add_run, fill_store

from protein.envs_c import worlds
from protein.trainer.export import export_policy


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("play")
    fill_store(f"sqlite:///{folder}/protein.db")
    checkpoint = folder / "pong" / "0007" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    add_run(f"sqlite:///{folder}/protein.db", of=1, score=19.0, checkpoint=checkpoint)
    served = Served(f"sqlite:///{folder}/protein.db")
    yield served
    served.stop()


def file_of(served: Served, path: str) -> bytes:
    with urllib.request.urlopen(f"{served.address}api/{path}") as answer:
        assert answer.headers["content-type"] == "application/octet-stream"
        found: bytes = answer.read()
        return found


def test_the_page_gets_the_game_and_the_policy(own: Served) -> None:
    checkpoint = Path(own.store_url.removeprefix("sqlite:///")).parent / "pong" / "0007" / "checkpoint.safetensors"
    assert file_of(own, "play/world?env=pong") == worlds.read("pong")
    make_checkpoint(checkpoint, "pong")
    assert file_of(own, "play/policy?sweep=pong&number=7") == export_policy(checkpoint)
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:-20])
    status, line = refused(own, "play/policy", sweep="pong", number=7)
    assert status == 400
    assert line.startswith("cannot read checkpoint.safetensors, it is damaged or no checkpoint")
    make_checkpoint(checkpoint, "pong", module="mine:Net")
    assert "has a network of your own, mine:Net" in refused(own, "play/policy", sweep="pong", number=7)[1]
    checkpoint.unlink()


def test_what_cannot_be_played_is_said(own: Served) -> None:
    assert refused(own, "play/world", env="../pong")[0] == 404
    assert refused(own, "play/world", env="gym:CartPole-v1")[1].startswith(
        "'gym:CartPole-v1' cannot be played in a page"
    )
    assert refused(own, "play/policy", sweep="pong", number=0)[1] == "it left no checkpoint, so its agent cannot play"
    assert refused(own, "play/policy", sweep="pong", number=99) == (404, "sweep 'pong' has no trial 99")
    assert refused(own, "play/policy", sweep="none", number=0)[0] == 404
