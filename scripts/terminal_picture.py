"""Turns a terminal's recorded content into an SVG picture, as the README shows it.

tmux capture-pane -e -p -t SESSION | python scripts/terminal_picture.py docs/images/sweep.svg "protein sweep"
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 110


def main() -> None:
    path, title = Path(sys.argv[1]), sys.argv[2]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(sys.stdin.read().rstrip()), soft_wrap=True)
    svg = console.export_svg(title=title)
    # The picture must not fetch a font from the network: whatever monospaced font the reader has will do.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
