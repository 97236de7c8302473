"""Lines of output: the name of a file cannot move the cursor, change colours or start another line."""

import sys
import unicodedata

# Control characters, formatting such as right-to-left overrides, halves of pairs (bytes that are no UTF-8), separators.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: object) -> str:
    r"""The text on one line, with control characters written as escapes.

    >>> print(printable("a\x1b[31m\nb.jpg"))
    a\x1b[31m\nb.jpg
    >>> print(printable("写真 é.jpg"))
    写真 é.jpg
    """
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in UNSAFE else c for c in str(text))


def complain(verb: str, what: object) -> None:
    """One line on standard error, with the verb that it comes from; "" where there is none."""
    # Its end in the same write: with --jobs another thread may print at the same time.
    print(f"{' '.join(['acda', verb]).strip()}: {printable(what)}\n", end="", file=sys.stderr, flush=True)


def print_line(what: object) -> None:
    """One line on standard output, without buffering."""
    print(f"{printable(what)}\n", end="", flush=True)
