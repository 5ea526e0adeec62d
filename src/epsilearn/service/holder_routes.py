"""What data holders do: register tables, open releases, make keys, read the log."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from epsilearn.errors import InvalidInput
from epsilearn.schema import Schema
from epsilearn.service.analyst_routes import balance_of, data_set_details, release_details
from epsilearn.service.bodies import CheckedRoute
from epsilearn.service.callers import Forbidden
from epsilearn.service.faults import FAULTS
from epsilearn.service.keys import Caller
from epsilearn.service.messages import (
    Bill,
    CallCounts,
    Calls,
    CreatedKey,
    CreateKey,
    DataSetDetails,
    Files,
    KeyList,
    OpenRelease,
    RegisterDataSet,
    ReleaseDetails,
)
from epsilearn.service.parts import Here, Holder, Parts
from epsilearn.service.tables import DataSet, NotFound

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["holder"], responses=FAULTS, route_class=CheckedRoute)
Name = Annotated[str, Path(max_length=64, examples=["stays"])]


def _data_set(here: Parts, caller: Caller, name: str) -> DataSet:
    if not caller.may_see(name):
        raise NotFound(f"there is no data set {name!r}, or none that this key is for")
    return here.tables.get(name)


@router.get("/files")
def list_files(caller: Holder, here: Here) -> Files:
    """The files that can be registered, by a key for every data set."""
    _check_unlimited(caller)
    return Files(files=here.tables.files())


@router.post("/datasets", status_code=201)
async def register_data_set(asked: RegisterDataSet, caller: Holder, here: Here) -> DataSetDetails:
    """Register a table: every row is read once and checked, and its budget is fixed for good."""
    _check_unlimited(caller)
    return await here.lanes.registering.run(asked.file, _register, here, asked, caller)


def _register(here: Parts, asked: RegisterDataSet, caller: Caller) -> DataSetDetails:
    if (asked.schema_toml is None) == (asked.schema_file is None):
        raise InvalidInput("give either schema_toml, the schema itself, or schema_file, a file with it")
    if asked.schema_toml is not None:
        schema = Schema.from_toml(asked.schema_toml)
    else:
        schema = Schema.read(_schema_file(here, asked.schema_file or ""))
    made = here.tables.register(asked.name, asked.file, schema, asked.epsilon, asked.delta, asked.rule, caller.label)
    return data_set_details(here, made)


@router.post("/datasets/{name}/bill")
async def bill(name: Name, asked: OpenRelease, caller: Holder, here: Here) -> Bill:
    """What opening a release would cost. Nothing is debited."""
    return await here.lanes.opening.run(name, _bill, here, name, asked, caller)


def _bill(here: Parts, name: str, asked: OpenRelease, caller: Caller) -> Bill:
    dataset = _data_set(here, caller, name)
    promise, before, after = here.releases.bill(dataset, asked, caller.label)
    return Bill(
        epsilon=promise.epsilon, delta=promise.delta, debited_now=asked.kind != "statistics",
        before=balance_of(before), after=balance_of(after), meaning=promise.explain().sentences(),
    )  # fmt: skip


@router.post("/datasets/{name}/releases", status_code=202)
async def open_release(name: Name, asked: OpenRelease, caller: Holder, here: Here) -> ReleaseDetails:
    """Open a release: the budget is debited, and the model is fitted in the background. Ask again for its status."""
    return await here.lanes.opening.run(name, _open, here, name, asked, caller)


def _open(here: Parts, name: str, asked: OpenRelease, caller: Caller) -> ReleaseDetails:
    dataset = _data_set(here, caller, name)
    made = here.releases.open(dataset, asked, caller.label)
    return release_details(here, caller, here.releases.get(made))


@router.post("/releases/{release}/close")
def close_release(release: Annotated[str, Path(max_length=64)], caller: Holder, here: Here) -> ReleaseDetails:
    """End a release: it takes no more questions. What was debited stays debited."""
    found = here.releases.get(release)
    if not caller.may_see(found.dataset):
        raise NotFound(f"there is no release {release!r}, or none that this key is for")
    here.releases.close(release)
    return release_details(here, caller, here.releases.get(release))


@router.get("/keys")
def list_keys(caller: Holder, here: Here) -> KeyList:
    """All keys, without their secrets; a key for some data sets sees those that are for no others."""
    found = here.keys.listed()
    return KeyList.model_validate({"keys": [key for key in found if _covers(caller, key["datasets"])]})


@router.post("/keys", status_code=201)
def create_key(asked: CreateKey, caller: Holder, here: Here) -> CreatedKey:
    """A new key, told this once. Nobody can give away more than they have."""
    if not _covers(caller, asked.datasets):
        raise InvalidInput("this key is for some data sets only, and so are the keys it makes: name some of them")
    text, made = here.keys.create(asked.role, asked.name, asked.datasets, caller.label, asked.days, caller.expires)
    return CreatedKey(key=text, id=made)


@router.delete("/keys/{key}", status_code=204)
def revoke_key(key: Annotated[str, Path(max_length=64)], caller: Holder, here: Here) -> Response:
    """End a key, at once and for good."""
    mine = [found for found in here.keys.listed() if found["id"] == key and _covers(caller, found["datasets"])]
    if not mine:
        raise NotFound("there is no such key, or none that this key may end")
    here.keys.revoke(key)
    return Response(status_code=204)


@router.get("/log")
def read_log(
    caller: Holder, here: Here, before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Calls:  # fmt: skip
    """The newest calls, or those before a number. For keys that are for every data set."""
    _check_unlimited(caller)
    return Calls.model_validate({"calls": here.log.listed(before, count)})


@router.get("/log/counts")
def read_counts(
    caller: Holder, here: Here, start: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> CallCounts:  # fmt: skip
    """Calls that are counted and not listed, the newest first: refused ones by the minute, old ones by the day."""
    _check_unlimited(caller)
    return CallCounts.model_validate({"counts": here.log.counted(start, count)})


def _check_unlimited(caller: Caller) -> None:
    """Whoever registers a table learns whether its rows fit: that is not for a key for other sets."""
    if caller.datasets is not None:
        raise Forbidden("this is for keys that are for every data set")


def _schema_file(here: Parts, name: str) -> FilePath:
    # Anything else would be a table, and an error would speak of its lines.
    if not name.endswith(".toml"):
        raise InvalidInput("schema_file must name a .toml file")
    return here.tables.path(name)


def _covers(caller: Caller, datasets: list[str] | None) -> bool:
    """Whether a key may be made or ended by another."""
    return caller.datasets is None or (datasets is not None and set(datasets) <= set(caller.datasets))
