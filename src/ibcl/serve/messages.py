"""What goes over the wire, for the service, its OpenAPI document and its client alike."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from ibcl.serve.settings import LARGEST_PREFERENCE, LARGEST_ROWS

Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
# Columns of questionnaires are called by the whole question.
Name = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
# Not dots alone: in a URL they would be steps between folders, and never reach the service.
User = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=128, pattern=r"^[.]*[A-Za-z0-9_@:+-][A-Za-z0-9._@:+-]*$"
    ),
]
VersionName = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]
# As many digits as a class or category that is a whole number may have.
Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**64)]
# Tried in order, so the most frequent kind comes first.
Value = Finite | Whole | StrictBool | Annotated[str, StringConstraints(max_length=10_000)] | None
Row = dict[Name, Value]
Rows = Annotated[list[Row], Field(min_length=1, max_length=LARGEST_ROWS)]
# In JSON 5.0 is a whole number too.
TokenId = Annotated[float, Field(strict=True, ge=0, lt=2**24, multiple_of=1)]
Tokens = Annotated[list[TokenId], Field(min_length=1)]
Mask = list[Annotated[float, Field(strict=True, ge=0, le=1, multiple_of=1)]]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Weights = Annotated[dict[Name, Weight], Field(min_length=1, max_length=LARGEST_PREFERENCE)]
Label = StrictBool | Whole | Finite | Annotated[str, StringConstraints(max_length=1000)]
Labels = Annotated[list[Label], Field(min_length=1, max_length=LARGEST_ROWS)]


class Message(BaseModel):
    """Nothing unknown is let in."""

    model_config = ConfigDict(extra="forbid")


class TokenIds(Message):
    """Texts as a tokenizer of transformers returns them, padded or not."""

    input_ids: Annotated[list[Tokens], Field(min_length=1, max_length=LARGEST_ROWS)]
    attention_mask: Annotated[list[Mask], Field(max_length=LARGEST_ROWS)] | None = None


Inputs = TokenIds | Annotated[list[Any], Field(min_length=1, max_length=LARGEST_ROWS)]


class Given(Message):
    """Rows by the names of their columns; or, of networks that read no table, arrays.

    Which of the two it is shows in the fields that are set.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["rows"]}, {"required": ["inputs"]}]}
    )

    rows: Rows = Field(default_factory=list)
    inputs: Inputs = Field(default_factory=list)
    """Nested lists of numbers with one entry per row, or token ids."""


class Error(Message):
    """Why something was not done."""

    error: str


class Health(Message):
    """The process is there."""

    status: Literal["ok"] = "ok"


class Ready(Message):
    """Requests can be answered."""

    status: Literal["ready"] = "ready"
    version: str


class Tasks(Message):
    """The knowledge base that is served."""

    tasks: list[str]
    """In order of learning."""
    version: str
    columns: list[str]
    """Empty where rows are arrays, which are sent as `inputs`."""
    inputs: list[int] | Literal["token ids"] | None = None
    """The shape of one row's array, or that rows are texts as token ids; None for tables."""
    classes: list[Any] | None
    """None for regression."""
    pooling: str
    samples: dict[str, int]
    """Samples that each task was learnt from."""


class Prediction(Given):
    """What every request for predictions may say."""

    version: VersionName | None = None
    bounds: StrictBool = False
    """Lower and upper probabilities over the credal set."""
    uncertainty: StrictBool = False
    """Total, aleatoric and epistemic uncertainty."""
    routing: StrictBool = False
    """Each task's share in the prediction, and how far the row is from all tasks."""
    set: Annotated[float, Field(gt=0, lt=1, strict=True)] | None = None
    """Probability with which sets of classes, or intervals of values, hold the right answer."""


class PredictByPreference(Prediction):
    """Rows, and the preference to predict them with."""

    preference: Weights


class PredictByUser(Prediction):
    """Rows, and the user whose stored preference to predict them with."""

    user: User


class PredictionRequest(Prediction):
    """One of the two, read in one pass: which one shows in the fields that are set."""

    preference: Weights = Field(default_factory=dict)
    user: User = ""


class Bounds(Message):
    """One entry per row and class, or per row and output."""

    lower: list[list[float]]
    upper: list[list[float]]


class Uncertainty(Message):
    """One entry per row."""

    total: list[float]
    aleatoric: list[float]
    epistemic: list[float]


class Routing(Message):
    """One entry per row."""

    shares: list[dict[str, float]]
    novelty: list[float]


class Predictions(Message):
    """One entry per row."""

    predictions: list[Any]
    probabilities: list[list[float]] | None
    """In the order of the classes; None for regression."""
    classes: list[Any] | None
    version: str
    preference: dict[str, float]
    """The preference that was used, over all tasks."""
    filled: dict[str, float]
    """Tasks that the preference did not name, and the weight they got."""
    dropped: dict[str, float]
    """Tasks that the stored preference names and that are gone, and the weight they had."""
    ignored: list[str] = []
    """Columns of the rows that the knowledge base does not have; at most a hundred are named."""
    unknown: dict[str, int] = {}
    """Columns with categories that were never learnt, which have no say, and how many values."""
    bounds: Bounds | None = None
    uncertainty: Uncertainty | None = None
    routing: Routing | None = None
    sets: list[list[Any]] | None = None
    """The classes in each row's set, or the two ends of its interval; an empty one says that the
    row is like nothing that was learnt."""


class PreferenceChange(Message):
    """A preference to store."""

    preference: Weights
    share_of_new_tasks: Annotated[float, Field(ge=0, lt=1, strict=True)] | None = None
    """Weight of each task that is learnt later; the service's own without one."""


class StoredPreference(Message):
    """A user's preference, over all tasks there are now."""

    user: str
    preference: dict[str, float]
    filled: dict[str, float]
    dropped: dict[str, float]
    share_of_new_tasks: float | None
    std: dict[str, float] | None
    """How sure each weight is, where it was inferred."""
    version: str
    changed: datetime


class HistoryEntry(Message):
    """A preference that a user had."""

    preference: dict[str, float]
    """Empty where it was deleted."""
    source: str
    changed: datetime


class History(Message):
    """The newest first."""

    user: str
    entries: list[HistoryEntry]


class Examples(Given):
    """What a user did: rows they dealt with, and what came of them."""

    labels: Labels | None = None
    """One a row, where known."""
    clicked: Annotated[list[StrictBool], Field(min_length=1, max_length=LARGEST_ROWS)] | None = None
    """Which of the rows shown the user chose; the others say nothing."""


class Feedback(Examples):
    """Examples to infer and store a user's preference from."""

    store: StrictBool = True
    """False only tells what would be stored."""
    forgetting: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    """Factor by which older examples count less with every new one; the service's own without."""
    restart: StrictBool = False
    """True forgets all earlier examples."""


class InferredPreference(Message):
    """A preference inferred from examples: its mean, and how sure it is."""

    preference: dict[str, float]
    std: dict[str, float]
    examples: int
    """Examples that counted."""
    version: str


class ModelRequest(Message):
    """A model to download."""

    preference: Weights
    format: Literal["safetensors", "onnx"] = "safetensors"
    version: VersionName | None = None


class Version(Message):
    """A version of the knowledge base."""

    version: str
    tasks: list[str]
    active: bool
    newest: bool


class VersionList(Message):
    """The oldest first."""

    versions: list[Version]
    following: bool
    """Whether new versions become active by themselves."""


class TokenRequest(Message):
    """Whose token to make; an administrator's without a user."""

    user: User | None = None


class NewToken(Message):
    """A token; this is the only time it is shown."""

    token: str


class Token(Message):
    """What may be shown of a token."""

    id: str
    user: str | None
    created: datetime


class TokenList(Message):
    """The oldest first."""

    tokens: list[Token]


class Example(Message):
    """A row that the explorer shows."""

    task: str
    label: Any
    row: dict[str, Any]


class Overview(Message):
    """What the explorer shows at first."""

    version: str
    tasks: list[str]
    columns: list[str]
    classes: list[Any] | None
    knowledge_base: str
    sets: bool
    """Whether sets that hold the right answer nine times in ten can be asked for."""
    validation: dict[str, int]
    """Rows to measure on, by task."""
    examples: list[Example]


class MeasurementRequest(Message):
    """A preference to measure the model of."""

    preference: Weights
    version: VersionName | None = None


class Measurement(Message):
    """Scores by task: accuracy, or R² for regression."""

    version: str
    scores: dict[str, float]
    weighted: float | None
    """Their average by the preference's weights, over the tasks with rows to measure on."""


class Front(Message):
    """Scores by task along the line between two vertices, and at all vertices."""

    version: str
    tasks: list[str]
    between: dict[str, list[float]]
    vertices: dict[str, list[float]]
