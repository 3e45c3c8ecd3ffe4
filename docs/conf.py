"""Sphinx: the pages of this folder and the reference that make_reference.py writes, as HTML."""
import logging
import os
import re

from sphinx.util.logging import get_node_location

project = "flatshard"
copyright = "the flatshard authors, Apache-2.0"
extensions = ["breathe"]
html_theme = "furo"
html_title = "flatshard"
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["requirements.txt"]
primary_domain = "cpp"
highlight_language = "c++"
default_role = "cpp:any"  # `Name` links to the reference
nitpicky = True  # and must be found there

breathe_projects = {"flatshard": os.environ.get("FLATSHARD_XML", "../build-docs/xml")}
breathe_default_project = "flatshard"
breathe_show_include = False
breathe_default_members = ("members",)


def is_no_reopened_namespace(record):
    """Every header opens the namespaces anew; Sphinx takes that for a second declaration."""
    return not re.search(r"Declaration is '.. cpp:type:: [a-z]+(::[a-z]+)*'", record.getMessage())


logging.getLogger("sphinx.sphinx.domains.cpp").addFilter(is_no_reopened_namespace)


def is_in_a_page(record):
    """The reference itself names what is internal, other libraries', or a source file."""
    location = getattr(record, "location", None)
    if hasattr(location, "walk"):
        location = get_node_location(location)
    return "/reference/" not in str(location or "")


for logger in ["transforms.post_transforms", "domains.std"]:
    logging.getLogger(f"sphinx.sphinx.{logger}").addFilter(is_in_a_page)
