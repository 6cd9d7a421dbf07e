"""What may reach a terminal: text without characters that steer it, and not endless.

Names, reasons, params, notes and logs come from programs and files of other people. An escape character in them could
move the cursor, set the window's title or change what a person believes to read; so can an override of the direction of
writing. `protein.view.tables.make_console` removes such characters from everything that it prints. Where a line is
written without it, `cleaned` does.
"""

import re

MAX_CELL = 400  # characters of a text in a line or in a table
MAX_TEXT = 4000  # characters of a text that is shown by itself
# C0 without tab and line feed, DEL, C1, marks and overrides of the direction of writing, other line separators.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def cleaned(text: str, most: int | None = None) -> str:
    """Returns text without characters that steer a terminal, cut to `most` characters where that is given."""
    if most is not None and len(text) > 2 * most:  # before the long work
        text = text[: 2 * most]
    found = STEERING.sub("", text)
    return found if most is None or len(found) <= most else found[: most - 1] + "…"
