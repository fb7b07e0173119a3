"""Sphinx settings: MyST reads the Markdown pages, and the API pages come from the docstrings."""

project = "Outcrop"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_title = "Outcrop"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
