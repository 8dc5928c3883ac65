"""``ibcl learn``: learn one task from a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibcl.cli.options import EngineName, Json, KnowledgeBaseFolder, LabelColumn, TableFiles
from ibcl.cli.settings_options import PANEL, takes_settings

if TYPE_CHECKING:
    from ibcl import IBCL
    from ibcl.inference import Inference
    from ibcl.likelihoods import Likelihood
    from ibcl.tabular import HeadChoice, Schema

_COLUMNS = "Columns, fixed by the first task"


@takes_settings
def learn(
    knowledge_base: KnowledgeBaseFolder,
    files: TableFiles,
    label: LabelColumn,
    task: Annotated[
        str | None, typer.Option(help="Name of the task.", show_default="the file's name")
    ] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Add these rows to a task learnt before.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Learn a task anew, in place of the old one.")
    ] = False,
    validation: Annotated[
        Path | None, typer.Option(help="Table for early stopping (mean-field only).")
    ] = None,
    sample_weight: Annotated[
        str | None,
        typer.Option(
            help="Column with how often each row counts.", metavar="COLUMN", show_default="once"
        ),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            help="'balanced' lets all classes count the same; or weights such as 'good=2,bad=1'.",
            metavar="WEIGHTS",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Feature columns, a,b,c: numbers, truth values, dates, or texts as categories.",
            show_default="all but texts that hardly repeat",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes, a,b,c, if the first task lacks some.",
            show_default="those of the first task",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    standardise: Annotated[
        bool,
        typer.Option(
            help="Scale features (and a regression's target) to mean 0 and standard deviation 1 "
            "over the first task; later tasks use the same numbers.",
            rich_help_panel=_COLUMNS,
        ),
    ] = True,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Take all settings, columns and the standardisation from this other knowledge "
            "base, so that the two can be merged.",
            metavar="KB",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Predict a value.", rich_help_panel=PANEL)
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            help="How full covariances are kept on disk: exact, float16 or eigenvectors:64.",
            show_default="exact",
        ),
    ] = None,
    engine: EngineName = "local",
    as_json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Learn a task from each CSV or Parquet file.

    The first task creates the knowledge base with the settings given; later tasks add to it, and
    need no settings. Independent tasks of several files are learnt at the same time, with
    the result of learning one after another. A file of more than 262,144 rows is learnt from block
    by block.
    """
    from functools import partial

    from ibcl.cli import knowledge_bases
    from ibcl.cli.long_files import classes_in, first_rows, further_blocks, is_long
    from ibcl.cli.output import count, emit, progress_bar
    from ibcl.cli.tables import column, read_table
    from ibcl.engines import engine as make_engine
    from ibcl.store import exists
    from ibcl.tabular import numbers_as_texts, usable_columns

    given = settings | ({"regression": True} if regression else {})
    if extend and replace:
        raise ValueError("Give --extend or --replace, not both")
    file, *others = files
    if others and (task is not None or extend or replace or validation is not None):
        raise ValueError("--task, --extend, --replace and --validation are for a single file")
    if len({path.stem for path in files}) < len(files):
        raise ValueError("Two of the files have the same name, which names their tasks")
    where = make_engine(engine)
    created = not exists(knowledge_base)
    if created and (extend or replace):
        raise ValueError(f"{knowledge_base} is not a knowledge base, so it has no task to change")
    learner: IBCL
    schema: Schema
    choice: HeadChoice | None = None
    reasons: dict[str, str] = {}
    as_texts: dict[str, str] = {}
    # Weights that balance the classes need all rows at once.
    long = class_weight != "balanced" and is_long(file)
    if created and like is None:
        frame = first_rows(file, long)
        y = column(frame, label, file)
        x = frame.drop(columns=[label, *([sample_weight] if sample_weight in frame else [])])
        weights = _weights(frame, y, sample_weight, class_weight, file, _names(classes))
        named: Sequence[Any] | None = _names(classes)
        if long and named is None and not _likelihood(given)[0]:
            named = classes_in(file, label)
        used_columns = _names(features)
        if used_columns is None:
            used_columns, reasons = usable_columns(_learnt_from(x, given))
        learner, schema, choice = _create(
            x, y, weights, given, used_columns, named, standardise, label
        )
        as_texts = numbers_as_texts(x, used_columns)
    else:
        learner, schema = knowledge_bases.load_tabular(like if created and like else knowledge_base)
        if created:
            nothing = dataclasses.replace(learner.state, knowledge=learner.knowledge.empty())
            learner.take_over(type(learner).from_state(nothing))
        knowledge_bases.check_settings(learner, given)
        knowledge_bases.check_columns(schema, _names(features), _names(classes))
        frame = first_rows(file, long, knowledge_bases.text_columns(schema, label))
        y = column(frame, label, file)
        weights = _weights(frame, y, sample_weight, class_weight, file, schema.classes)
    name = file.stem if task is None else task
    held_out = None
    if validation is not None:
        other = read_table(validation, knowledge_bases.text_columns(schema, label))
        held_out = other, column(other, label, validation)
    with progress_bar(f"Learning {name}", hidden=as_json) as progress:
        if extend:
            record = learner.extend(frame, y, name, progress, sample_weight=weights)
        else:
            action = learner.replace if replace else learner.learn
            record = action(frame, y, name, held_out, progress, sample_weight=weights)
    if long:
        for block in further_blocks(file, knowledge_bases.text_columns(schema, label)):
            y = column(block, label, file)
            weights = _weights(block, y, sample_weight, class_weight, file, schema.classes)
            record = learner.extend(block, y, name, sample_weight=weights)
    expert = learner.given.expert
    in_order = not learner.knowledge.independent or (expert is not None and expert.judges_others)
    if others and in_order:
        for path in others:
            more, labels, weights = _read(label, sample_weight, class_weight, learner, path)
            learner.learn(more, labels, task=path.stem, sample_weight=weights)
    elif others:
        from ibcl.cli.independent_tasks import learn_independently

        for path in others:
            more, labels, _ = _read(label, sample_weight, class_weight, learner, path)
            learner.make_room(more, labels)
        learn_independently(
            learner, others, partial(_read, label, sample_weight, class_weight), where
        )
    learner.save(knowledge_base, storage=storage)
    stored = len(learner.knowledge.stored)
    before, schema = schema, knowledge_bases.schema_of(learner, knowledge_base)
    new_classes = (schema.class_names or ())[len(before.class_names or ()) :]
    new_inputs = [name for name in schema.input_names if name not in before.input_names]
    used = schema.names or ()
    left_out = [name for name in frame.columns if name not in (*used, label, sample_weight)]
    result = {
        "knowledge_base": knowledge_base,
        "created": created,
        "task": name,
        "samples": record.samples,
        "updates": record.updates,
        "features": used,
        "columns_left_out": left_out,
        "numbers_as_texts": list(as_texts),
        "classes": schema.classes,
        "new_classes": new_classes,
        "new_categories": new_inputs,
        "pointers": record.pointers,
        "stored_posteriors": stored,
        "stored_bytes": learner.knowledge.nbytes,
        "tasks": learner.tasks,
    }
    verb = "Extended" if extend else "Learnt again" if replace else "Learnt"
    lines = [
        *(f"Learnt task {path.stem!r}." for path in others),
        f"{verb} task {name!r} from {count(record.samples, 'sample')} and "
        f"{count(len(used), 'feature')}"
        + (f" with {count(record.updates, 'batch update')}." if record.updates else "."),
        f"{knowledge_base} holds {count(len(learner.tasks), 'task')} in "
        f"{count(stored, 'posterior')} ({count(learner.knowledge.nbytes, 'byte')}).",
    ]
    if choice is not None:
        result["network"] = choice._asdict()
        lines.append(f"Network: {choice.name}, since {choice.reason}.")
    if new_classes:
        lines.append(f"New classes: {', '.join(new_classes)}.")
    if new_inputs:
        lines.append(f"New categories: {', '.join(new_inputs)}.")
    if left_out:
        said = [f"{name} ({reasons[name]})" if name in reasons else name for name in left_out]
        lines.append(f"Columns not used: {', '.join(said)}.")
    lines += [
        f"Column {name!r} is learnt as categories, since it holds texts such as {text!r}; write "
        "them as 1234.5 if they are meant as numbers, and leave cells empty where there is none."
        for name, text in as_texts.items()
    ]
    emit(result, as_json, *lines)


def _learnt_from(x: Any, given: Mapping[str, Any]) -> Any:
    """Return the rows that are learnt from, where some are held out to calibrate with."""
    from ibcl.conformal import held_out

    if given.get("calibration") is None:
        return x
    return x.iloc[held_out(len(x), given["calibration"], given.get("seed", 0))[0]]


def _create(
    x: Any,
    y: Any,
    weights: Any,
    given: Mapping[str, Any],
    features: list[str],
    classes: Sequence[Any] | None,
    standardise: bool,
    label: str,
) -> tuple[IBCL, Schema, HeadChoice]:
    """Make a learner for tables like this one; what is not given is chosen by the library."""
    import ibcl
    from ibcl.cli.threads import choose_threads
    from ibcl.conformal import held_out
    from ibcl.tabular import (
        DEFAULT_HEAD,
        HeadChoice,
        Schema,
        choose_head,
        choose_head_by_size,
        in_scaled_units,
        make_head,
        outputs_for,
        readable_by_experts,
        scales,
        table_pooling,
    )

    if label in features:
        raise ValueError(f"The label column {label!r} cannot be a feature as well")
    regression, likelihood = _likelihood(given)
    learnt = None
    if given.get("calibration") is not None:
        learnt, _ = held_out(len(x), given["calibration"], given.get("seed", 0))
    schema = Schema.fit(
        x,
        y,
        features=features,
        classes=classes,
        regression=regression,
        standardise=standardise,
        scale_target=standardise and scales(likelihood),
        sample_weight=weights,
        rows=learnt,
    )
    count = None if schema.classes is None else len(schema.classes)
    outputs = outputs_for(count)
    seed, width = given.get("seed", 0), given.get("width")
    kind = given.get("network", DEFAULT_HEAD)
    if "expert" in given and readable_by_experts(kind, schema.width, outputs) != kind:
        kind = readable_by_experts(kind, schema.width, outputs)
        choice = HeadChoice(kind, None, "experts read the columns themselves")
    elif "network" in given:
        choice = HeadChoice(kind, width, "it was asked for")
    else:
        settled = choose_head_by_size(schema.width, count, width)
        if settled is None:
            used = slice(None) if learnt is None else learnt
            rows, labels = schema.inputs(x.iloc[used]), schema.labels(y.iloc[used])
            settled = choose_head(rows, labels, count, width=width, seed=seed)
        choice = settled
    network = make_head(
        choice.name,
        schema.width,
        outputs,
        width=choice.width,
        hidden=given.get("hidden"),
        seed=seed,
    )
    pooling = given.get("pooling")
    if pooling is None:
        pooling = table_pooling(network, schema.width, outputs)
    learner = ibcl.IBCL(
        network,
        priors=given.get("priors"),
        inference=_inference(given, network),
        pooling=pooling,
        d=given.get("d"),
        distance=given.get("distance", "rms"),
        alpha=given.get("alpha", 0.01),
        seed=given.get("seed", 0),
        likelihood=in_scaled_units(likelihood, schema.scale),
        independent=given.get("independent"),
        calibration=given.get("calibration"),
        calibration_rows=given.get("calibration_rows", "kept"),
        memory=given.get("memory"),
        expert=given.get("expert"),
        encoder=schema,
    )
    choose_threads(learner.network.dimension)
    return learner, schema, choice


def _inference(given: Mapping[str, Any], network: Any) -> Inference | None:
    """Return the method that was asked for; None leaves it to the library."""
    from inspect import signature

    from ibcl.inference import METHODS
    from ibcl.networks import FlatNetwork

    name, epochs = given.get("inference"), given.get("epochs")
    if name is None and epochs is not None and not FlatNetwork(network).is_linear:
        name = "mean_field"
    settings = {} if epochs is None else {"epochs": epochs}
    if epochs is not None and (name is None or "epochs" not in signature(METHODS[name]).parameters):
        raise ValueError("--epochs only means something with --inference mean-field")
    return None if name is None else METHODS[name](**settings)


def _likelihood(given: Mapping[str, Any]) -> tuple[bool, str | Likelihood]:
    """Return whether a value is to be predicted, and with which likelihood in its own units."""
    from ibcl.likelihoods import LIKELIHOODS
    from ibcl.tabular import value_likelihood

    name = given.get("likelihood")
    classes = name is not None and LIKELIHOODS[name].classification
    if classes and given.get("regression"):
        raise ValueError(f"--likelihood {name} is for classes, not for --regression")
    if classes or (name is None and not given.get("regression")):
        if "noise" in given:
            raise ValueError("--noise only means something with --regression")
        return False, name or "auto"
    chosen = {} if name is None else {"likelihood": name}
    return True, value_likelihood(**chosen, noise=given.get("noise"))


def _read(
    label: str, sample_weight: str | None, class_weight: str | None, learner: IBCL, file: Path
) -> tuple[Any, Any, Any]:
    """Read a file for a learner that knows the columns: its table, labels and weights."""
    from ibcl.cli.knowledge_bases import text_columns
    from ibcl.cli.tables import column, read_table
    from ibcl.tabular import Schema

    schema = learner.encoder
    assert isinstance(schema, Schema)
    frame = read_table(file, text_columns(schema, label))
    y = column(frame, label, file)
    return frame, y, _weights(frame, y, sample_weight, class_weight, file, schema.classes)


def _weights(
    frame: Any,
    y: Any,
    sample_weight: str | None,
    class_weight: str | None,
    file: Path,
    classes: Sequence[Any] | None,
) -> Any:
    from ibcl.cli.tables import column
    from ibcl.tabular import sample_weights

    by_class: str | dict[str, float] | None = class_weight
    if class_weight is not None and "=" in class_weight:
        pairs = [part.rsplit("=", 1) for part in class_weight.split(",")]
        try:
            by_class = {name.strip(): float(weight) for name, weight in pairs}
        except ValueError:
            raise ValueError(
                f"--class-weight must be 'balanced' or such as 'good=2,bad=1', not {class_weight!r}"
            ) from None
        if len(by_class) < len(pairs):
            raise ValueError(f"--class-weight {class_weight!r} names a class more than once")
    each = None if sample_weight is None else column(frame, sample_weight, file)
    return sample_weights(y, each, by_class, classes)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
