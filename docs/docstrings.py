"""A Sphinx extension: acda's docstrings, which are plain text with `code`, as reStructuredText.

A line `name: what it is`, with further lines indented, describes an argument; several may stand in one line, four
spaces apart. Together they become a list. Everything else is paragraphs and examples.
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
    ['Blend \\\\*all\\\\* of ``x``.', '', '', '* ``x``: (B, C)', '* ``scale``: a factor,', '  one unless given', '']
    """
    example = in_list = False
    for line in lines:
        example = line.startswith(">>>") or (example and bool(line.strip()))
        if example:
            yield line
            continue
        found = ARGUMENT.fullmatch(line)
        if found and not in_list:
            yield ""  # a list needs an empty line before it
        if found:
            in_list = True
            for part in APART.split(line):
                yield argument(part)
        elif in_list and line.startswith("    "):
            yield f"  {escaped(line.strip())}"
        else:
            if in_list:
                yield ""
            in_list = False
            yield escaped(line)
    if in_list:
        yield ""


def argument(text: str) -> str:
    """One item of the list."""
    found = ARGUMENT.fullmatch(text)
    assert found is not None, text
    names = ", ".join(f"``{name}``" for name in found["names"].split(", "))
    return f"* {names}: {escaped(found['text'])}"


def escaped(text: str) -> str:
    """Text with `code` as ``code``, and what reStructuredText would take for markup as it is."""
    return "".join(
        f"`{part}`" if CODE.fullmatch(part) else SPECIAL.sub(r"\\\1", part) for part in CODE.split(text)
    )
