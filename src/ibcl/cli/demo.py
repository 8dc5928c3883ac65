"""``ibcl demo``: the whole story on a small example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import Json


def demo(
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("ibcl-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything random.")] = 0,
    as_json: Json = False,
) -> None:
    """Learn five tasks on handwritten digits, and explain them on an interactive page.

    Needs no data from elsewhere, and less than a minute.
    """
    import torch

    from ibcl.cli.output import emit, stages
    from ibcl.demo.experiment import run
    from ibcl.demo.growth import growth
    from ibcl.demo.page import page
    from ibcl.demo.summary import tables
    from ibcl.demo.tasks import digit_tasks
    from ibcl.demo.uncertainty import doubts

    # Matrices this small are faster on one thread, and far faster on a busy machine.
    torch.set_num_threads(1)
    if not output.absolute().parent.is_dir():
        raise ValueError(f"The output {output} is in a folder that does not exist")
    with stages(hidden=as_json) as started:
        digits = digit_tasks(seed)
        results = run(digits, seed, lambda way: started(f"Learning: {way}"))
        started("Measuring growth and uncertainty")
        stored = growth(digits, seed)
        found = doubts(results.ways[0].learner, digits, seed)
        output.write_text(page(results, stored, found), encoding="utf-8")
    figures = {
        **results.figures(),
        "growth": stored,
        "uncertainty": [doubt._asdict() for doubt in found],
        "page": output,
    }
    emit(figures, as_json, *tables(results), f"Open {output} in a browser.")
