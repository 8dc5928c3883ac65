"""Folders for the Hugging Face hub: a knowledge base or one model, with card and configuration.

::

    movies/
      README.md              the card, with the front matter that the hub reads
      config.json            what is inside, for people and tools; never read back
      knowledge/             the knowledge base, as `ibcl.IBCL.save` writes it,
      model.safetensors      or the model, as `ibcl.Model.save` writes it

``learner.save_pretrained(folder)`` and ``model.save_pretrained(folder)`` write such a folder, which
``huggingface_hub.upload_folder`` takes as it is, ``push_to_hub`` uploads it, and
`ibcl.from_pretrained` opens a folder or what the hub has under an id. Nothing in it is pickled, so
opening what somebody else uploaded runs no code of theirs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ibcl.cards import LICENCE, knowledge_card
from ibcl.encoding import Encoder
from ibcl.errors import StoreError
from ibcl.files import path_text, write_atomically
from ibcl.state import State

KNOWLEDGE, MODEL = "knowledge", "model.safetensors"
CARD, CONFIG = "README.md", "config.json"

TAGS = ("continual-learning", "bayesian", "imprecise-probability", "multi-task")
# Identifiers of licences that the hub knows; others are named in the card.
_LICENCES = frozenset(
    {
        *("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "mpl-2.0", "unlicense"),
        *("gpl-2.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0", "odbl", "pddl", "cc0-1.0", "cc-by-4.0"),
        *("cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0"),
    }
)


@dataclass(frozen=True)
class About:
    """What a folder says about what is in it.

    Parameters
    ----------
    config
        The contents of ``config.json``.
    card
        Markdown.
    metadata
        Of the learner, for the licence.
    pipeline
        The hub's name for what it does, such as ``"tabular-classification"``.
    """

    kind: Literal["knowledge base", "model"]
    config: Mapping[str, Any]
    card: str
    metadata: Mapping[str, Any]
    pipeline: str | None

    def front_matter(self) -> str:
        """Return YAML between its lines; JSON is YAML, so every text is quoted as JSON.

        Examples
        --------
        >>> about = About("model", {}, "", {"licence": "MIT"}, None)
        >>> print(about.front_matter().splitlines()[3])
        license: "mit"
        """
        facts: dict[str, Any] = {"library_name": "ibcl", "tags": list(TAGS)}
        licence = str(self.metadata.get(LICENCE) or self.metadata.get("license") or "")
        if licence.lower() in _LICENCES:
            facts["license"] = licence.lower()
        elif licence:
            facts |= {"license": "other", "license_name": licence}
        if self.pipeline:
            facts["pipeline_tag"] = self.pipeline
        lines = [f"{name}: {json.dumps(value)}" for name, value in facts.items()]
        return "\n".join(["---", *lines, "---", ""])


def pipeline(encoder: Encoder | None, classification: bool) -> str | None:
    """Return the hub's name for what a learner of tables does; None for other inputs."""
    if encoder is None or encoder.kind != "tabular":
        return None
    return "tabular-classification" if classification else "tabular-regression"


def about_knowledge(state: State, metadata: Mapping[str, Any]) -> About:
    """Say what a learner knows, in a folder that it is saved to."""
    config = {
        "tasks": list(state.tasks),
        "likelihood": state.likelihood.name if state.learnt else None,
        "pooling": None if state.rule is None else state.rule.name,
        "network": state.network.specification,
    }
    does = pipeline(state.encoder, state.learnt and state.likelihood.classification)
    card = knowledge_card(state, metadata)
    return About("knowledge base", config, card, metadata, does)


def write(about: About, folder: str | PathLike[str], save: Callable[[Path], None]) -> None:
    """Write a folder; what it is about comes last.

    Parameters
    ----------
    save
        Writes the knowledge base, or the model, to the path it is given.
    """
    place = Path(path_text(folder))
    own, other = (KNOWLEDGE, MODEL) if about.kind == "knowledge base" else (MODEL, KNOWLEDGE)
    if (place / other).exists():
        raise StoreError(f"{place} holds {other} already; choose a folder of its own.")
    save(place / own)
    known = {"library_name": "ibcl", "kind": f"ibcl {about.kind}", "version": version("ibcl")}
    config = json.dumps({**known, **about.config}, indent=2, default=str) + "\n"
    try:
        write_atomically(place / CARD, (about.front_matter() + about.card).encode())
        write_atomically(place / CONFIG, config.encode())
    except OSError as error:
        raise StoreError(f"Cannot write to {place}: {error.strerror or error}.") from None


def push(
    save: Callable[[Path], None],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    commit_message: str = "Upload with ibcl",
) -> str:
    """Upload what `save` writes, in the place of what the repository had, and return its address.

    Earlier versions stay in the repository's history, with all that has been forgotten since.
    """
    api = _huggingface_hub().HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "repository")
        found = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=found.repo_id,
            folder_path=Path(folder) / "repository",
            commit_message=commit_message,
            ignore_patterns=[f"{KNOWLEDGE}/.*"],
            delete_patterns=[f"{KNOWLEDGE}/*", MODEL],
        )
    return str(found)


@contextmanager
def opened(source: str | PathLike[str], **settings: Any) -> Iterator[Path]:
    """Give the folder of a path, or a copy of what the hub has under an id.

    Parameters
    ----------
    settings
        ``revision``, ``token``, ``cache_dir`` and ``local_files_only``, as in ``huggingface_hub``.
    """
    place = Path(path_text(source))
    if place.exists():
        yield place
        return
    hub = _huggingface_hub()
    try:
        wanted = [f"{KNOWLEDGE}/*", MODEL, CONFIG]
        found = hub.snapshot_download(str(source), allow_patterns=wanted, **settings)
    # Besides errors of its own, the hub's client passes on those of whatever carries its requests.
    except Exception as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise StoreError(
            f"{source} is no folder here, and the hub does not give it: {said}."
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        # The hub's cache is made of links, which are not followed where a knowledge base is read.
        copied = Path(folder) / "repository"
        shutil.copytree(found, copied)
        yield copied


def _huggingface_hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(
            "The Hugging Face hub is reached by huggingface_hub, which is not installed: "
            "pip install 'ibcl[hub]'."
        ) from None
    return huggingface_hub
