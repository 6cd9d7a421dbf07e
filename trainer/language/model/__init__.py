"""The network of a language model: a decoder-only transformer, GPT-2's or the modern one.

design      what sets the two apart, one field for each difference
gpt         the whole network: embedding, blocks, head, loss
block       attention and feed-forward network
rotary      positions as rotations of queries and keys
loss        cross-entropy from the last hidden layer
cache       keys and values of what was read, for sampling
released    weights from a checkpoint folder of the `transformers` library
"""

from .cache import Cache
from .design import DESIGNS, Design
from .gpt import GPT

__all__ = ["DESIGNS", "GPT", "Cache", "Design"]
