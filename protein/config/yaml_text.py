"""Reads a YAML text that others have written, in time and memory in proportion to it."""

import math
from typing import Any

_ALWAYS = 10_000  # values are read, however short the text


def plain(text: str) -> Any:
    """Returns what a YAML text holds, of plain values; None for an empty one.

    An alias (`*name`) stands for a whole once more, and a few lines of aliases of aliases stand for more than any
    memory holds. So a text, with its aliases written out, has no more values than characters.

    Raises:
        ImportError: PyYAML is not installed.
        ValueError: it is no YAML, in one line; or it holds more than that.
    """
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _num_values(node, {}) > max(len(text), _ALWAYS):
            raise ValueError("its aliases stand for more values than it has characters; write them out")
        return loader.construct_document(node)
    except Exception as error:  # PyYAML also raises others, as for "!!bool maybe"
        said = " ".join(str(error).split())
        raise ValueError(said if isinstance(error, yaml.YAMLError | ValueError) else f"{error!r:.80}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _num_values(node: Any, known: dict[int, float]) -> float:
    """Returns how many values a node has with its aliases written out; infinity for one that holds itself."""
    if isinstance(node.value, str):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = (one for pair in node.value for one in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_num_values(one, known) for one in inner)
    return known[id(node)]
