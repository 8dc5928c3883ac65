"""``ibcl demo``: the whole story on a small example, and on a movie company's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ibcl.cli.options import Force, Json

_PAGE, _MOVIES = Path("ibcl-demo.html"), Path("movies.ibcl")


def demo(
    story: Annotated[
        Literal["digits", "movies"],
        typer.Argument(help="Handwritten digits, or the viewers of a movie company."),
    ] = "digits",
    output: Annotated[
        Path | None,
        typer.Option(
            help="The page to write, or the knowledge base of the movies.",
            show_default="ibcl-demo.html or movies.ibcl",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything random.")] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the movies in the end, with their explorer.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve them on.")] = 8000,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn tasks one after another, and show what becomes of every preference between them.

    'digits': five tasks on handwritten digits, explained on an interactive page; needs no data from
    elsewhere, and less than a minute. 'movies': MovieLens with audiences as tasks and a preference
    for every viewer, compared with one model for all, averages, matrix factorisation and
    retraining.
    """
    from ibcl.cli.threads import choose_threads

    if serve and story != "movies":
        raise ValueError("Only the movies are served; write 'ibcl demo movies --serve'")
    choose_threads(0)
    if story == "movies":
        _movies(output or _MOVIES, seed, serve, port, force, as_json)
    else:
        _digits(output or _PAGE, seed, force, as_json)


def _digits(output: Path, seed: int, force: bool, as_json: bool) -> None:
    from ibcl.cli.output import emit, stages
    from ibcl.cli.tables import check_output
    from ibcl.demo.disagreement import disagreement
    from ibcl.demo.experiment import run
    from ibcl.demo.growth import growth
    from ibcl.demo.page import page
    from ibcl.demo.summary import tables
    from ibcl.demo.tasks import digit_tasks
    from ibcl.demo.uncertainty import doubts
    from ibcl.files import write_atomically

    # The page of an earlier demonstration is replaced; nothing else is.
    usual = output == _PAGE
    check_output(output, force or usual, endings=[".html"])
    with stages(hidden=as_json) as started:
        digits = digit_tasks(seed)
        results = run(digits, seed, lambda way: started(f"Learning: {way}"))
        started("Measuring growth and uncertainty")
        stored = growth(digits, seed)
        found = doubts(results.ways[0].learner, digits, seed)
        trade = disagreement(digits, seed)
        write_atomically(output, page(results, stored, found, trade).encode(), force or usual)
    figures: dict[str, Any] = {
        **results.figures(),
        "disagreement": {
            "own": trade.own.tolist(),
            "uniform": trade.uniform[0].tolist(),
            "retrained": trade.retrained.tolist(),
        },
        "growth": stored,
        "uncertainty": [doubt._asdict() for doubt in found],
        "page": output,
    }
    emit(figures, as_json, *tables(results), f"Open {output} in a browser.")


def _movies(output: Path, seed: int, serve: bool, port: int, force: bool, as_json: bool) -> None:
    from ibcl.cli.output import emit, stages
    from ibcl.demo.movies.comparison import compare
    from ibcl.demo.movies.findings import figures, tables, verdict
    from ibcl.demo.movies.ratings import movielens, read
    from ibcl.demo.movies.service import save

    # The knowledge base of an earlier demonstration is replaced; nothing else is.
    replaced = force or output == _MOVIES
    if output.exists() and not replaced:
        raise ValueError(f"{output} exists already; choose another name, or add --force")
    with stages(hidden=as_json) as started:
        started("Reading MovieLens")
        comparison = compare(read(movielens(), seed), started, seed)
        settings = save(comparison, output, overwrite=replaced)
    said = f"Explore it with 'ibcl serve {output}'."
    emit(
        {**figures(comparison), "verdict": verdict(comparison), "knowledge_base": output},
        as_json,
        *tables(comparison),
        verdict(comparison),
        f"The explorer is at http://127.0.0.1:{port}" if serve else said,
    )
    if serve:
        from ibcl.serve.process import run

        run(settings, "127.0.0.1", port)
