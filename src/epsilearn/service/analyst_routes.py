"""What analysts do: see what there is and what it costs, ask, download."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from epsilearn import __version__
from epsilearn.errors import InvalidInput
from epsilearn.ledger import Balance as LedgerBalance
from epsilearn.schema import Schema
from epsilearn.service.asked import as_table
from epsilearn.service.asker import Asker, Told
from epsilearn.service.bodies import CheckedRoute
from epsilearn.service.faults import FAULTS
from epsilearn.service.keys import HOLDER, Caller
from epsilearn.service.leave import statistics_promise
from epsilearn.service.messages import (
    Answers,
    AskStatistic,
    Balance,
    Column,
    DataSetDetails,
    DataSetSummary,
    Me,
    Points,
    ReleaseDetails,
    ReleaseSummary,
    SpendingPage,
    StatisticAnswer,
)
from epsilearn.service.parts import Analyst, Here, Parts
from epsilearn.service.releases import OPEN, Release
from epsilearn.service.spending import PAGE, spent
from epsilearn.service.tables import DataSet, NotFound, Taken

__all__ = ["balance_of", "data_set_details", "release_details", "router"]

router = APIRouter(prefix="/api", tags=["analyst"], responses=FAULTS, route_class=CheckedRoute)
Name = Annotated[str, Path(max_length=64, examples=["stays"])]
Id = Annotated[str, Path(max_length=64, examples=["5f0c6a2b9d3e1f47"])]
_KINDS = {"model.json": "application/json", "guarantee.json": "application/json", "report.html": "text/html"}


def balance_of(balance: LedgerBalance) -> Balance:
    """Where a ledger stands, as it is told."""
    return Balance(**{name: getattr(balance, name) for name in Balance.model_fields})


def _columns(schema: Schema, target: str | None) -> list[Column]:
    names = [name for name, column in schema.columns.items() if not column.ignored and name != target]
    found = {name: schema.columns[name] for name in names}
    return [
        Column(
            name=name, bounds=None if c.bounds is None else list(c.bounds),
            categories=None if c.categories is None else list(c.categories), missing=c.missing,
        )
        for name, c in found.items()
    ]  # fmt: skip


def _summary(caller: Caller | None, release: Release) -> dict[str, Any]:
    settings = release.settings
    shown = caller is None or caller.role == HOLDER
    return {
        "id": release.id, "dataset": release.dataset, "kind": release.kind, "status": release.status,
        "target": getattr(settings, "target", None), "message": release.message if shown else "",
        "epsilon": settings.epsilon, "delta": getattr(settings, "delta", 0.0), "created": release.created,
        "who": release.who, "note": settings.note,
    }  # fmt: skip


def data_set_details(here: Parts, dataset: DataSet, caller: Caller | None = None) -> DataSetDetails:
    """Everything that is public about a data set."""
    ledger = here.tables.ledger(dataset.name, "")
    return DataSetDetails(
        name=dataset.name, rows=dataset.rows, balance=balance_of(ledger.balance()), spending=spent(ledger),
        created=dataset.created, who=dataset.who, columns=_columns(dataset.schema, None),
        releases=[ReleaseSummary(**_summary(caller, release)) for release in here.releases.of(dataset.name)],
    )  # fmt: skip


def release_details(here: Parts, caller: Caller, release: Release) -> ReleaseDetails:
    """Everything that is public about a release."""
    guarantee, schema = release.guarantee, here.tables.get(release.dataset).schema
    if release.kind == "statistics":
        guarantee = statistics_promise(release.settings.epsilon, schema.rows_per_person)
    return ReleaseDetails(
        **_summary(caller, release), settings=release.settings.model_dump(),
        guarantee=None if guarantee is None else guarantee.to_dict(),
        meaning=[] if guarantee is None else guarantee.explain().sentences(),
        noise_deviation=release.facts.get("noise_deviation"), tolerance=release.facts.get("tolerance"),
        documents=sorted(here.releases.documents(release.id)), left=here.releases.left(release),
        columns=_columns(schema, getattr(release.settings, "target", None)),
    )  # fmt: skip


def _release(here: Parts, caller: Caller, release: str) -> Release:
    found = here.releases.get(release)
    if not caller.may_see(found.dataset):
        raise NotFound(f"there is no release {release!r}, or none that this key is for")
    return found


@router.get("/me")
def me(caller: Analyst) -> Me:
    """Whose key this is."""
    datasets = None if caller.datasets is None else list(caller.datasets)
    role: Any = caller.role
    return Me(key=caller.key, name=caller.name, role=role, datasets=datasets, version=__version__)


@router.get("/datasets")
def list_data_sets(caller: Analyst, here: Here) -> list[DataSetSummary]:
    """The data sets this key is for, each with its budget."""
    seen = [dataset for dataset in here.tables.all() if caller.may_see(dataset.name)]
    return [
        DataSetSummary(name=d.name, rows=d.rows, balance=balance_of(here.tables.ledger(d.name, "").balance()))
        for d in seen
    ]


@router.get("/datasets/{name}")
def get_data_set(name: Name, caller: Analyst, here: Here) -> DataSetDetails:
    """A data set: its columns, its releases, and what was spent on what, when and by whom."""
    if not caller.may_see(name):
        raise NotFound(f"there is no data set {name!r}, or none that this key is for")
    return data_set_details(here, here.tables.get(name), caller)


@router.get("/datasets/{name}/spending")
def get_spending(
    name: Name, caller: Analyst, here: Here, before: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    count: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
) -> SpendingPage:  # fmt: skip
    """What was spent on a data set: the newest debits, or those before an entry."""
    if not caller.may_see(name):
        raise NotFound(f"there is no data set {name!r}, or none that this key is for")
    return SpendingPage(spending=spent(here.tables.ledger(here.tables.get(name).name, ""), before, count))


@router.get("/releases/{release}")
def get_release(release: Id, caller: Analyst, here: Here) -> ReleaseDetails:
    """A release: what it promises, and what may still be asked."""
    return release_details(here, caller, _release(here, caller, release))


@router.post("/releases/{release}/predict")
async def predict(release: Id, asked: Points, caller: Analyst, here: Here) -> Answers:
    """Private predictions for some points. The same point has the same answer, whoever asks, whenever."""
    found = await run_in_threadpool(_predicting, here, caller, release, asked)
    asker = here.releases.loaded(found)
    if asker is None:
        asker = await here.lanes.loading.run(found.id, here.releases.asker, found)
    # No thread waits with them: padded answers would keep all threads from everybody else.
    told = await asyncio.wrap_future(await run_in_threadpool(_asked, asker, asked))
    here.metrics.answered(found.kind, len(told.answers))
    return Answers.model_validate({"answers": told.answers, "left": told.left})


def _predicting(here: Parts, caller: Caller, release: str, asked: Points) -> Release:
    """The release, if it can be asked for predictions at so many points."""
    found = _release(here, caller, release)
    if found.kind == "statistics":
        raise Taken("this release answers statistics, not predictions")
    if len(asked.rows) > here.limits.rows_per_request:
        raise InvalidInput(f"at most {here.limits.rows_per_request:,} rows can be asked about at once")
    return found


def _asked(asker: Asker, asked: Points) -> Future[Told]:
    live = asker.live
    if live.schema.sparse:
        raise InvalidInput("the columns of this model are numbered; download it, and ask it where you are")
    return asker.ask(live.encoding.matrix(as_table(asked.rows, live.schema, live.target)))


@router.post("/releases/{release}/statistic")
async def ask_statistic(release: Id, asked: AskStatistic, caller: Analyst, here: Here) -> StatisticAnswer:
    """A private statistic of a column. It is debited, unless somebody has asked the same before."""
    found, dataset = await run_in_threadpool(_statistics_of, here, caller, release)
    told = await here.lanes.statistics.run(
        found.id, here.releases.leave.ask, found.id, dataset, found.settings.epsilon, asked, caller.label
    )
    here.metrics.answered("statistics", 1)
    return StatisticAnswer(**told.content, asked_before=told.asked_before, left={"epsilon": told.left})


def _statistics_of(here: Parts, caller: Caller, release: str) -> tuple[Release, DataSet]:
    found = _release(here, caller, release)
    if found.kind != "statistics":
        raise Taken("this release answers predictions, not statistics")
    if found.status != OPEN:
        raise Taken(f"this release is {found.status}: it takes no questions")
    return found, here.tables.get(found.dataset)


@router.get(
    "/releases/{release}/documents/{document}", response_class=Response,
    responses={200: {"content": {"application/json": {}, "text/html": {}}, "description": "The document"}},
)  # fmt: skip
def download(
    release: Id, document: Literal["model.json", "guarantee.json", "report.html"], caller: Analyst, here: Here
) -> Response:
    """A released model, its guarantee, or the report for people."""
    found = here.releases.documents(_release(here, caller, release).id)
    if document not in found:
        raise NotFound(f"this release has no {document}")
    name = f'attachment; filename="{release}-{document}"'
    headers = {"Content-Disposition": name}
    return Response(found[document], media_type=f"{_KINDS[document]}; charset=utf-8", headers=headers)
