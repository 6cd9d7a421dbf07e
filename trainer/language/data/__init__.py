"""The text that a language model learns: from files to the rows of one step.

    corpus       what a run reads: `open_corpus(path)` -> `Corpus` with its two parts, training and validation; from our
                 shards, from those of llm.c and modded-nanogpt (FineWeb), or from Python's standard library
    batches      rows of tokens with their targets, in an order that the seed fixes, from an exact position
    shards       our files of tokens: a folder of memory-mapped shards with `data.json`
    tokenizers   bytes; byte-pair encodings: GPT-2's, and those that are learned
    preparing    from files of text to a folder of shards
    hellaswag    the questions of HellaSwag, and how a model's answers are scored

In all of it each document begins with the document token, which stands for no text. Source: llm.c, `dev/data/`.
"""
