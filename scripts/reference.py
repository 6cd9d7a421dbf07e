"""Writes docs/reference.md, the reference of the Python API, from the docstrings: `make docs`.

python scripts/reference.py            # writes the page
python scripts/reference.py --check    # changes nothing; fails where the page is not up to date
"""

import re
import sys
from pathlib import Path

import griffe
from griffe2md import ConfigDict, render_object_docs

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Reference of the Python API

All that `import protein` offers. griffe2md made this page from the docstrings: edit those, then run `make docs`.
How to use the parts together is in [Sweep your own trainer](sweep-your-own-trainer.md). The words are explained in
the [glossary](glossary.md).
"""
CONFIG = ConfigDict(
    heading_level=2,
    inherited_members=False,
    line_length=100,
    members_order="source",
    show_bases=False,
    show_if_no_docstring=False,
    show_object_full_path=False,
    show_root_full_path=False,
    show_root_members_full_path=False,
    show_signature_annotations=True,
    summary=False,
)
PICTURE = ConfigDict(**{**CONFIG, "heading_level": 3})
# What is shown of classes whose other methods serve the engine; of all others, everything public is shown.
MEMBERS: dict[str, list[str] | bool] = {
    **dict.fromkeys(("Categorical", "Float", "Integer", "ProteinSampler", "Stop"), False),
    "Report": ["__call__"],
    "Space": ["validate", "is_valid", "default", "to_dict", "from_dict"],
}
_ANCHOR = re.compile(r"\[([^\[\]]*)\]\(#[^)]*\)")  # griffe2md links every type, also those that are not on the page


def page() -> str:
    """Returns the text of the page."""
    package = griffe.load("protein", search_paths=[ROOT], docstring_parser="google", resolve_aliases=True)
    parts = [HEAD]
    for name in sorted([*(package.exports or ()), "ProteinSampler"], key=str):
        found = package[name].final_target
        parts.append(render_object_docs(found, ConfigDict(**CONFIG, members=MEMBERS.get(name)), format_md=True))
    pictures = package["plots"]
    parts += [f"## `protein.plots`\n\n{pictures.docstring.value}\n"]
    for name in sorted(pictures.exports):
        parts.append(render_object_docs(pictures[name], ConfigDict(**PICTURE), format_md=True))
    return _ANCHOR.sub(r"\1", "\n".join(parts))


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif page() != PAGE.read_text(encoding="utf-8"):
        sys.exit("docs/reference.md is not what the docstrings say; run make docs")
