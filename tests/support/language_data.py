"""Small corpora for the tests of language models: documents that are all known, as a folder of shards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from protein.trainer.language.data.shards import Description, ShardWriter
from protein.trainer.language.data.tokenizers import BYTES, Bytes


def write_bytes_corpus(
    folder: Path, train: Sequence[bytes], validation: Sequence[bytes], *, shard_tokens: int = 1 << 30
) -> Path:
    """Writes documents by bytes into a folder, and returns it."""
    folder.mkdir(parents=True)
    parts = {}
    for part, documents in (("train", train), ("validation", validation)):
        writer = ShardWriter(
            folder, part, dtype="uint16", document_token=Bytes.document_token, shard_tokens=shard_tokens
        )
        for document in documents:
            writer.begin()
            writer.add(Bytes().encode(document), len(document))
        parts[part] = writer.close()
    Description(
        tokenizer=BYTES, vocab_size=Bytes.vocab_size, document_token=Bytes.document_token, dtype="uint16", parts=parts
    ).write(folder)
    return folder


def random_documents(number: int, longest: int, seed: int = 0) -> list[bytes]:
    """Returns documents of random bytes, each of 1 to `longest` of them."""
    generator = np.random.default_rng(seed)
    return [
        generator.integers(256, size=generator.integers(1, longest + 1)).astype(np.uint8).tobytes()
        for _ in range(number)
    ]
