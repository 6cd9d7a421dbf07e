"""Training a language model: data, network, steps, evaluation. It stands beside `ppo/`, on the same shared parts.

config          the settings of one run
model           the network: GPT-2's, and the modern one
data/           tokens on disk, tokenizers, the built-in corpus, batches
update          one step, its optimisers and its precision
training        the loop: steps, reports, checkpoints
released        the settings of GPT-2's released weights; trained: a network and its tokenizer
evaluate        validation loss, HellaSwag
sample          text that the model writes
"""
