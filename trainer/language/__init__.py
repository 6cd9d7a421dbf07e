"""Training a language model: data, network, steps, evaluation. It stands beside `ppo/`, on the same shared parts.

config          the settings of one run
model/          the network: GPT-2's, and the modern one
data/           tokens on disk, tokenizers, the built-in corpus, batches
optimizer       which parameters go to which optimiser, at which step size
training        the loop: steps, reports, checkpoints
evaluate        validation loss, HellaSwag
sample          text that the model writes
"""
