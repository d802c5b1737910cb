"""How Sphinx builds these pages: Markdown, the package's docstrings, nothing from the network."""

from __future__ import annotations

import perkey

project = "perkey"
version = release = perkey.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"perkey {release}"
html_copy_source = False
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
html_static_path = ["_static"]
html_css_files = ["tables.css"]
