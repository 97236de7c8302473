"""A Sphinx extension: acda's docstrings, which are plain text with `code`, as reStructuredText.

A line `name: what it is` describes an argument; several may stand in one line, four spaces apart. Together they become
a list. Further lines belong to the last of them if they are indented, or if the line before ends in the middle of a
sentence. Everything else is paragraphs and examples.
"""

import re
from collections.abc import Iterator
from typing import Any

ARGUMENT = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.+)")
APART = re.compile(r" {4,}(?=\w+(?:, \w+)*: )")
CODE = re.compile(r"(`[^`]+`)")
SPECIAL = re.compile(r"([\\*|_])")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}


def process(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring in place, as Sphinx wants it."""
    lines[:] = list(translated(lines))


def translated(lines: list[str]) -> Iterator[str]:
    """The same docstring in reStructuredText.

    >>> list(translated(["Blend *all* of `x`.", "", "x: (B, C)    scale: a factor,", "    one unless given"]))
    ['Blend \\\\*all\\\\* of ``x``.', '', '', '* ``x``: (B, C)', '* ``scale``: a factor,', '  one unless given']
    """
    example = in_list = False
    before = ""
    for line in lines:
        example = line.startswith(">>>") or (example and bool(line.strip()))
        found = not example and ARGUMENT.fullmatch(line) is not None
        goes_on = in_list and bool(line) and (line.startswith("    ") or not before.endswith("."))
        if found != in_list and not goes_on:
            yield ""  # around a list
        if example:
            yield line
        elif found:
            yield from map(argument, APART.split(line))
        else:
            yield f"  {escaped(line.strip())}" if goes_on else escaped(line)
        in_list, before = found or goes_on, line


def argument(text: str) -> str:
    """One item of the list."""
    found = ARGUMENT.fullmatch(text)
    assert found is not None, text
    names = ", ".join(f"``{name}``" for name in found["names"].split(", "))
    return f"* {names}: {escaped(found['text'])}"


def escaped(text: str) -> str:
    """Text with `code` as ``code``, and what reStructuredText would take for markup as it is."""
    return "".join(f"`{part}`" if CODE.fullmatch(part) else SPECIAL.sub(r"\\\1", part) for part in CODE.split(text))
