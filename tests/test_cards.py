"""Cards say what is known, whatever it is called; saving and opening do not depend on them."""

import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from safetensors import safe_open

import ibcl
from ibcl import store
from ibcl.cards import MARK, MOST_ROWS, model_card
from ibcl.names import printable
from ibcl.tabular import Schema

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


def learner(*tasks: str) -> ibcl.IBCL:
    made = ibcl.IBCL(ibcl.networks.linear(3))
    for column, task in enumerate(tasks):
        made.learn(X[: 40 - column], X[: 40 - column, column % 3] > 0, task=task)
    return made


def tables(markdown: str) -> dict[str, list[list[str]]]:
    """Read the tables by the heading before each, as another program would."""
    found: dict[str, list[list[str]]] = {}
    heading, row = "", None
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline":
            content = "".join(child.content for child in token.children)
            assert {child.type for child in token.children} <= {
                "text",
                "text_special",
                "code_inline",
            }
            if before.type == "heading_open":
                heading = content
            elif row is not None:
                row.append(content)
        elif token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            found.setdefault(heading, []).append(row)
            row = None
    return found


def test_a_card_says_what_was_learnt_from_how_many_samples_and_how():
    made = learner("sci-fi", "documentary")
    made.metadata = {"licence": "CC-BY-4.0", "measured": {"accuracy": {"sci-fi": 0.93}}}
    found = tables(made.card())
    assert [row[:2] for row in found["What was learnt"][1:]] == [
        ["sci-fi", "40"],
        ["documentary", "39"],
    ]
    settings = dict(found["Settings"])
    assert settings["pooling"] == "routed"
    assert settings["inference"] == repr(made.inference)
    assert settings["seed"] == "0"
    assert dict(found["Left open, and chosen on the first task"][1:]) == made.choices
    assert found["Measured"][1:] == [["accuracy, sci-fi", "0.93"]]
    assert found["Licence"][1:] == [["CC-BY-4.0"]]


def test_what_is_not_known_is_said_to_be():
    card = learner("a").card()
    assert "Measured" not in tables(card)
    assert "Nothing was recorded" in card
    assert "Not stated" in card
    assert "Nothing yet." in learner().card()


@given(
    st.text(min_size=1).map(lambda text: " ".join(text.split())).filter(bool),
    st.text(min_size=1).filter(lambda text: text.strip() == text),
)
def test_any_name_is_shown_and_does_nothing(task, licence):
    made = {"samples": {task: 3}, "metadata": {"licence": licence, "measured": {task: licence}}}
    found = tables(model_card({task: 1.0}, made))
    shown, written = printable(task)[:500], printable(licence)[:500]
    assert found["Preference, and what was learnt"][1] == [shown, "1", "3"]
    assert found["Measured"][1] == [shown, written]
    assert found["Licence"][1] == [written]


def test_a_card_of_very_many_tasks_stays_readable():
    many = {f"t{number}": 0.0 for number in range(MOST_ROWS + 5)}
    card = model_card(many, {})
    assert len(tables(card)["Preference, and what was learnt"]) == MOST_ROWS + 1
    assert "And 5 more." in card


def test_columns_and_classes_of_a_table_are_named():
    frame = pd.DataFrame({"age": [20.0, 30.0, 40.0, 50.0], "town": ["Rome", "Oslo"] * 2})
    labels = ["yes", "no", "yes", "no"]
    schema = Schema.fit(frame, labels)
    made = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    made.learn(frame, labels, task="a")
    settings = dict(tables(made.card())["Settings"])
    assert settings["features"] == "age, town"
    assert settings["classes"] == "no, yes"


class TestOnDisk:
    def test_every_save_writes_the_card_of_what_was_saved(self, tmp_path):
        folder = tmp_path / "kb"
        made = learner("a", "b")
        made.save(folder)
        assert (folder / "README.md").read_text() == made.card()
        made.forget("a")
        made.save(folder)
        assert "| a |" not in (folder / "README.md").read_text()
        loaded = ibcl.load(folder)
        assert loaded.card() == made.card()
        assert loaded.choices == made.choices != {}

    @pytest.mark.parametrize("damage", ["changed", "gone", "binary", "folder", "link"])
    def test_opening_never_depends_on_it(self, damage, tmp_path):
        folder = tmp_path / "kb"
        made = learner("a")
        made.save(folder)
        card = folder / "README.md"
        card.unlink()
        if damage == "changed":
            card.write_text(MARK + "anything")
        elif damage == "binary":
            card.write_bytes(bytes(range(256)))
        elif damage == "folder":
            card.mkdir()
        elif damage == "link":
            card.symlink_to(tmp_path / "elsewhere")
        loaded = ibcl.load(folder)
        assert loaded.tasks == ("a",)
        assert store.contents(folder) is store.Contents.KNOWLEDGE_BASE

    def test_ones_own_readme_is_left_alone(self, tmp_path):
        folder = tmp_path / "kb"
        made = learner("a")
        made.save(folder)
        (folder / "README.md").write_text("# Mine\n")
        made.forget("a")
        made.save(folder)
        assert (folder / "README.md").read_text() == "# Mine\n"

    def test_a_folder_with_somebodys_readme_is_not_taken_for_ours(self, tmp_path):
        (tmp_path / "README.md").write_text("# A project\n")
        assert store.contents(tmp_path) is store.Contents.FOREIGN
        with pytest.raises(ibcl.StoreError, match=r"README\.md"):
            learner("a").save(tmp_path)
        assert (tmp_path / "README.md").read_text() == "# A project\n"

    def test_a_card_without_a_manifest_is_no_hindrance(self, tmp_path):
        made = learner("a")
        made.save(tmp_path)
        (tmp_path / "manifest.json").unlink()
        assert store.contents(tmp_path) is store.Contents.UNFINISHED
        made.save(tmp_path)
        assert ibcl.load(tmp_path).tasks == ("a",)

    def test_nothing_outside_is_written_through_a_link(self, tmp_path):
        folder, outside = tmp_path / "kb", tmp_path / "outside.md"
        made = learner("a")
        made.save(folder)
        outside.write_text(MARK)
        (folder / "README.md").unlink()
        (folder / "README.md").symlink_to(outside)
        with pytest.raises(ibcl.StoreError, match="not a plain file"):
            made.save(folder)
        assert outside.read_text() == MARK

    def test_a_card_that_cannot_be_written_does_not_fail_the_save(self, tmp_path, monkeypatch):
        folder = tmp_path / "kb"
        made = learner("a")
        replace = store.folder.LocalFolder.replace

        def full(self, name, data, version):
            if name == "README.md":
                raise ibcl.StoreError("Cannot write README.md: No space left on device.")
            return replace(self, name, data, version)

        monkeypatch.setattr(store.folder.LocalFolder, "replace", full)
        with pytest.warns(UserWarning, match="was written, but not its card"):
            made.save(folder)
        monkeypatch.undo()
        assert ibcl.load(folder).tasks == ("a",)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.save(folder)
        assert (folder / "README.md").read_text() == made.card()


class TestOfAModel:
    def test_an_exported_model_carries_its_card(self, tmp_path: Path):
        made = learner("a", "b")
        made.metadata["licence"] = "MIT"
        model = made.model([0.25, 0.75])
        model.save(tmp_path / "model.safetensors")
        with safe_open(tmp_path / "model.safetensors", "pt") as file:
            assert file.metadata()["card"] == model.card()
        loaded = ibcl.load_model(tmp_path / "model.safetensors")
        assert loaded.card() == model.card()
        found = tables(model.card())
        assert found["Preference, and what was learnt"][1:] == [
            ["a", "0.25", "40"],
            ["b", "0.75", "39"],
        ]
        assert dict(found["Settings"])["knowledge base"] == store.digest(made.state, made.metadata)
        assert found["Licence"][1:] == [["MIT"]]
