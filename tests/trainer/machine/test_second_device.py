"""A run on `cuda:1` works on that device alone: nothing asks torch for the current device's queue, memory or kind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import protein.trainer

# What torch.cuda answers for the current device, where it is not told another one.
OF_A_DEVICE = frozenset(
    f"torch.cuda.{name}"
    for name in (
        *("Stream", "current_stream", "default_stream", "synchronize", "mem_get_info", "get_device_capability"),
        *("get_device_name", "get_device_properties", "memory_allocated", "memory_reserved", "max_memory_allocated"),
        *("max_memory_reserved", "memory_stats", "reset_peak_memory_stats", "utilization"),
    )
)


def without_device(node: ast.AST, *, chosen: bool = False) -> Iterator[str]:
    """Yields where a device is left open: `torch.cuda.f` without arguments, and outside of `torch.cuda.device(...)`."""
    if isinstance(node, ast.With):
        chosen = chosen or any(ast.unparse(item.context_expr).startswith("torch.cuda.device(") for item in node.items)
    settled = [getattr(node, "annotation", None), getattr(node, "returns", None)]  # types
    if isinstance(node, ast.Call) and (node.args or node.keywords):
        settled.append(node.func)
    elif isinstance(node, ast.Attribute) and not chosen and ast.unparse(node) in OF_A_DEVICE:
        yield f"line {node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        if child not in settled:
            yield from without_device(child, chosen=chosen)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("torch.cuda.synchronize()", 1),
        ("wait = torch.cuda.synchronize", 1),
        ("x = f(torch.cuda.current_stream().query(), 3)", 1),
        ("torch.cuda.synchronize(device)", 0),
        ("def f(stream: torch.cuda.Stream) -> torch.cuda.Stream: pass", 0),
        ("with torch.cuda.device(device):\n    torch.cuda.Stream()", 0),
    ],
)
def test_the_search_finds_what_leaves_the_device_open(code: str, found: int) -> None:
    assert len(list(without_device(ast.parse(code)))) == found


def test_nothing_of_the_trainer_means_the_current_device() -> None:
    found = {}
    for path in sorted(Path(protein.trainer.__path__[0]).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "torch.cuda" in text and (places := list(without_device(ast.parse(text)))):
            found[path.name] = places
    assert not found
