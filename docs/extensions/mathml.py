"""Formulas as MathML, which every browser draws by itself: no script, no font, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def formula(node: nodes.Node, display: str) -> str:
    """MathML of a formula, with the space after log that the converter leaves out."""
    return convert(node.astext(), display=display).replace(
        "<mi>log</mi>", '<mi>log</mi><mspace width="0.17em"/>'
    )


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    writer.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own, with its number where it has a label."""
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    if node.get("number"):
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="equation-number">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append(formula(node, "block"))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
