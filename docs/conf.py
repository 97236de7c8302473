"""Sphinx: the site that `make docs` builds. Pages are Markdown; the API page comes from docstrings."""

project = "acda"
html_title = "acda"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
# Nothing is loaded from elsewhere: furo brings its fonts and scripts along, and formulas are plain text.
html_show_sourcelink = False
html_copy_source = False
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
suppress_warnings = ["myst.xref_missing"]
