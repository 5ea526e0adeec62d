"""What travels: requests and answers, with the examples that the API's description shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from epsilearn.checks import is_line

__all__ = [
    "Answers", "AskStatistic", "Balance", "Bill", "CallCounts", "Calls", "CreateKey", "CreatedKey", "DataSetDetails",
    "DataSetSummary", "Fault", "Files", "Interactive", "KeyList", "Me", "Model", "OpenRelease", "Points", "Process",
    "RegisterDataSet", "ReleaseDetails", "Spending", "SpendingPage", "StatisticAnswer", "Statistics",
]  # fmt: skip


def _line(text: str) -> str:
    """What the ledger takes as a purpose."""
    if not is_line(text):
        raise ValueError("must be one line of letters, digits, signs and spaces, without control or format characters")
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["stays"])]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Epsilon = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, examples=[1.0])]
Delta = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False, examples=[1e-6])]
Line = Annotated[str, Field(max_length=200, examples=["for the yearly report"]), AfterValidator(_line)]
ColumnName = Annotated[str, Field(min_length=1, max_length=500, examples=["age"])]
Value = Annotated[bool | Finite | Annotated[str, Field(max_length=1000)] | None, Field(examples=[63])]


class Message(BaseModel):
    """What comes in has no word that is not known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reply(BaseModel):
    """What goes out."""


class Fault(Reply):
    """Why nothing came of a request. It never speaks of a private value."""

    error: str = Field(examples=["this key is not valid: it is wrong, expired or revoked"])


# ------------------------------------------------------------------------------------------------------------ keys


class Me(Reply):
    """Whose key this is."""

    key: str
    name: str
    role: Literal["holder", "analyst"]
    datasets: list[str] | None = Field(description="null: every data set")
    version: str


class CreateKey(Message):
    """A key to be made."""

    role: Literal["holder", "analyst"] = Field(examples=["analyst"])
    name: Name = Field(examples=["anna"])
    datasets: Annotated[list[Name], Field(fail_fast=True)] | None = Field(
        None, max_length=100, description="What it is for; null: every data set"
    )
    days: Annotated[float, Field(gt=0, le=36500, allow_inf_nan=False)] | None = Field(None, examples=[90])


class CreatedKey(Reply):
    """A key, told this once."""

    key: str = Field(description="Keep it: only its digest is stored")
    id: str


class Key(Reply):
    """A key without its secret."""

    id: str
    role: str
    name: str
    datasets: list[str] | None
    created: str
    who: str
    expires: str | None
    revoked: str | None


class KeyList(Reply):
    """All keys, the newest first."""

    keys: list[Key]


class Files(Reply):
    """Files in the server's folder of tables."""

    files: list[str]


class Call(Reply):
    """One line of the log."""

    number: int
    time: str
    key: str | None
    who: str
    address: str
    method: str
    path: str
    status: int


class Calls(Reply):
    """The newest calls, or those before a number."""

    calls: list[Call]


class CallCount(Reply):
    """How many calls of one kind there were in a minute or on a day."""

    time: str = Field(description="The minute for refused calls, the day for those that were once listed")
    key: str = Field(description="Empty if the key was wrong, or there was none")
    who: str
    address: str = Field(description='Where refused calls came from, or "several"')
    method: str
    path: str
    status: int
    calls: int


class CallCounts(Reply):
    """Calls that are counted rather than listed: refused ones, and those too old for the list."""

    counts: list[CallCount]


# ------------------------------------------------------------------------------------------------------- data sets


class RegisterDataSet(Message):
    """A table, what is public about it, and its budget for good."""

    name: Name
    file: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="A file in the server's folder of tables", examples=["patients.csv"]
    )
    schema_toml: Annotated[str, Field(max_length=500_000)] | None = Field(
        None, description="What is public about it, as TOML", examples=["version = 1\n[columns.age]\nbounds = [0, 120]"]
    )
    schema_file: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="Or a TOML file in the same folder", examples=["schema.toml"]
    )
    epsilon: Epsilon = Field(description="The total budget", examples=[2.0])
    delta: Delta = 0.0
    rule: Literal["pure", "zcdp", "renyi"] | None = Field(None, description="How debits add up; fixed for good")


class Balance(Reply):
    """Where a budget stands."""

    epsilon: float
    delta: float
    rule: str
    rows_per_person: int
    spent_epsilon: float = Field(description="The plain sum of all debits")
    spent_delta: float
    remaining_epsilon: float = Field(description="The largest pure epsilon that would still be admitted")
    used: float = Field(description="The share of the budget that is gone, from 0 to 1")
    debits: int
    head: str


class Column(Reply):
    """What is public about a column."""

    name: str
    bounds: list[float] | None
    categories: list[Any] | None
    missing: Any = None


class Spending(Reply):
    """One debit: when, by whom, for what, at what cost."""

    entry: int
    time: str
    who: str
    purpose: str
    epsilon: float
    delta: float
    status: str
    used: float = Field(description="The share of the budget gone after it")


class ReleaseSummary(Reply):
    """A release, in short."""

    id: str
    dataset: str
    kind: Literal["process", "interactive", "model", "statistics"]
    target: str | None
    status: Literal["opening", "open", "failed", "closed"]
    message: str = Field(description="Why it failed, if it did")
    epsilon: float
    delta: float
    created: str
    who: str
    note: str


class DataSetSummary(Reply):
    """A data set and its budget."""

    name: str
    rows: int
    balance: Balance


class DataSetDetails(DataSetSummary):
    """A data set: what is public, what was spent, what was released."""

    created: str
    who: str
    columns: list[Column]
    releases: list[ReleaseSummary]
    spending: list[Spending] = Field(description="The newest 1,000 debits; older ones: see its own path")


class SpendingPage(Reply):
    """Some debits of a data set, in their order."""

    spending: list[Spending]


# -------------------------------------------------------------------------------------------------------- releases


class _Opening(Message):
    note: Line = Field("", description="Written into the ledger")
    epsilon: Epsilon


class _Learning(_Opening):
    target: ColumnName = Field(examples=["readmitted"])
    delta: Delta = Field(1e-6, gt=0)
    kernel: Literal["rbf", "polynomial", "linear"] = "rbf"
    alpha: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | Literal["auto"] = "auto"


class Process(_Learning):
    """A Gaussian process release: unlimited answers for one budget."""

    kind: Literal["process"]
    max_points: int = Field(1000, ge=1, le=20_000, description="Different points that may ever be asked (RBF kernel)")


class Interactive(_Learning):
    """An interactive session: answers are private only where a public hypothesis is off."""

    kind: Literal["interactive"]
    questions: int = Field(1000, ge=1, le=1_000_000, description="Different points that may ever be asked")
    failure: float = Field(0.05, gt=0, lt=1, description="The chance that some answer is further off than promised")


class Model(_Opening):
    """A model to be downloaded."""

    kind: Literal["model"]
    target: ColumnName = Field(examples=["readmitted"])
    delta: Delta = 0.0
    model: Literal["logistic", "svm", "linear", "lasso", "sparse-logistic", "landmark"] = "logistic"
    kernel: Literal["rbf", "polynomial"] = Field("rbf", description="Of landmark models")
    alpha: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | Literal["auto"] = "auto"


class Statistics(_Opening):
    """Leave for analysts to ask for statistics, up to an epsilon in all. Each is debited when it is asked."""

    kind: Literal["statistics"]


OpenRelease = Annotated[
    Process | Interactive | Model | Statistics,
    Field(
        discriminator="kind",
        examples=[{"kind": "process", "target": "readmitted", "epsilon": 1.0, "delta": 1e-6, "kernel": "rbf"}],
    ),
]


class Bill(Reply):
    """What opening a release would cost, and what would be left. Nothing has been debited."""

    epsilon: float
    delta: float
    debited_now: bool = Field(description="False for statistics, which are debited one by one")
    before: Balance
    after: Balance
    meaning: list[str]


class ReleaseDetails(ReleaseSummary):
    """A release: what it promises and how to ask it."""

    settings: dict[str, Any]
    guarantee: dict[str, Any] | None
    meaning: list[str]
    noise_deviation: float | None = Field(description="Of the noise in one answer, at most; public")
    tolerance: float | None = Field(description="Of an interactive session")
    documents: list[str]
    columns: list[Column] = Field(description="What a point or a statistic may name")
    left: dict[str, float | None] = Field(description="What may still be asked")


class Points(Message):
    """Points to ask about, each with the schema's columns; the target is left out."""

    # The first row that is wrong is the last that is looked at.
    rows: Annotated[list[dict[ColumnName, Value]], Field(fail_fast=True)] = Field(
        min_length=1, examples=[[{"age": 63, "ward": "surgery"}]]
    )


class OneAnswer(Reply):
    """The answer at one point."""

    prediction: bool | float | str = Field(description="The class, or the number inside its public bounds")
    score: float | None = Field(description="What it follows from; null for models of more than two classes")
    private: bool | None = Field(None, description="Whether the private model answered (interactive sessions)")


class Answers(Reply):
    """The answers, in the order of the questions."""

    answers: list[OneAnswer]
    left: dict[str, float | None]


class AskStatistic(Message):
    """A statistic of one column. Bounds and categories are the schema's."""

    statistic: Literal["count", "sum", "mean", "variance", "histogram", "quantile", "median"]
    column: ColumnName
    epsilon: Epsilon = Field(examples=[0.1])
    equals: Value = Field(None, description="For count: the category to count")
    edges: Annotated[list[Finite], Field(fail_fast=True)] | None = Field(
        None, min_length=2, max_length=1000, description="For histograms of numbers"
    )
    q: float = Field(0.5, gt=0, lt=1, description="For quantile")


class StatisticAnswer(Reply):
    """A private statistic."""

    value: float | list[int]
    bins: list[str] | None
    half_width_95: float | None = Field(description="What the noise can do to it, at 95 %")
    guarantee: dict[str, Any]
    asked_before: bool = Field(description="True if it was in the store: then nothing was debited")
    left: dict[str, float | None]
