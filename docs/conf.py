"""How the documentation is built: offline, and with every warning an error (``make docs``)."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]
# Pictures are drawn into files, and small matrices are fastest on one thread.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from reference import write_reference  # noqa: E402

autosummary_filename_map = write_reference(HERE / "reference")

project = "ibcl"
author = "the ibcl authors"
release = version = installed_version("ibcl")
language = "en_GB"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "docstrings",
    "sphinx.ext.napoleon",
    "mathml",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["extensions", "reference/objects/.*", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]
default_role = "py:obj"
html_math_renderer = "mathml"
suppress_warnings = [
    # Single backticks in docstrings name things; several classes may have a property of one name.
    "ref.python",
    # Tables that results are written as are pages without a title.
    "toc.no_title",
]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__\.py|looks\.py",
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": "",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", "gallery_style.apply"),
}

html_theme = "pydata_sphinx_theme"
html_title = "ibcl"
html_static_path = ["_static"]
html_css_files = ["ibcl.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "ibcl"},
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "collapse_navigation": True,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 8,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
project_copyright = "the ibcl authors, MIT licence"
html_sidebars = {name: [] for name in ("index", "start", "concepts", "theory", "compare")}
