"""``ibcl demo``: the whole story on a small example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import Force, Json


def demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("ibcl-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything random.")] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn five tasks on handwritten digits, and explain them on an interactive page.

    Needs no data from elsewhere, and less than a minute.
    """
    from ibcl.cli.output import emit, stages
    from ibcl.cli.tables import check_output
    from ibcl.cli.threads import choose_threads
    from ibcl.demo.experiment import run
    from ibcl.demo.growth import growth
    from ibcl.demo.page import page
    from ibcl.demo.summary import tables
    from ibcl.demo.tasks import digit_tasks
    from ibcl.demo.uncertainty import doubts
    from ibcl.files import write_atomically

    choose_threads(0)
    # The page of an earlier demonstration is replaced; nothing else is.
    usual = output == Path("ibcl-demo.html")
    check_output(output, force or usual, endings=[".html"])
    with stages(hidden=as_json) as started:
        digits = digit_tasks(seed)
        results = run(digits, seed, lambda way: started(f"Learning: {way}"))
        started("Measuring growth and uncertainty")
        stored = growth(digits, seed)
        found = doubts(results.ways[0].learner, digits, seed)
        write_atomically(output, page(results, stored, found).encode(), force or usual)
    figures = {
        **results.figures(),
        "growth": stored,
        "uncertainty": [doubt._asdict() for doubt in found],
        "page": output,
    }
    emit(figures, as_json, *tables(results), f"Open {output} in a browser.")
