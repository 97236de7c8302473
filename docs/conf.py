"""Sphinx: the site that `make docs` builds. Pages are Markdown; the API page comes from docstrings."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # docstrings.py

project = "acda"
copyright = "The acda authors"
html_title = "acda"
extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings"]
# References from the paper's results to their sections need anchors of headings.
myst_heading_anchors = 3
exclude_patterns = ["notebooks"]
highlight_language = "bash"  # of blocks that name no other
smartquotes = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100
nitpicky = True
# Nothing is loaded from elsewhere: furo brings its scripts along and uses the fonts of the reader's machine.
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#4338ca", "color-brand-content": "#4338ca"},
    "dark_css_variables": {"color-brand-primary": "#a5b4fc", "color-brand-content": "#a5b4fc"},
}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", without_last_lines)


def without_last_lines(app: Any, page: str, source: list[str]) -> None:
    """Show examples without the empty line at their end, which doctest needs."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")
