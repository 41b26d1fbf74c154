"""Sphinx's configuration of the site that ``make docs`` builds."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parent), str(_HERE / "_ext")]

project = "AI fabric emulator"
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
exclude_patterns = ["_ext"]

html_theme = "furo"
html_title = project
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
highlight_language = "text"
pygments_style = "tango"

autodoc_default_options = {
    "members": True,
    "exclude-members": "model_config",
    "member-order": "bysource",
    "no-value": True,
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
