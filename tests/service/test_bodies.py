"""Bodies are checked beside the event loop, and nobody waits for a thread that answers to be told what is wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import anyio.to_thread
import httpx
import numpy as np
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, BeforeValidator

from epsilearn.service.app import create
from epsilearn.service.bodies import CheckedRoute, shape_fault
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.store import opened_store

seen: list[str] = []


def noted(value: Any) -> Any:
    seen.append(threading.current_thread().name)
    return value


class Body(BaseModel):
    text: Annotated[str, BeforeValidator(noted)]


def posted(app: Any, path: str, content: bytes, **headers: str) -> httpx.Response:
    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.post(path, content=content, headers={"Content-Type": "application/json", **headers})

    return asyncio.run(call())


def test_bodies_are_checked_in_threads_of_their_own_long_ones_in_another():
    router = APIRouter(route_class=CheckedRoute)

    @router.post("/")
    async def read(asked: Body) -> int:
        return len(asked.text)

    app = FastAPI()
    app.state.parts = SimpleNamespace(limits=SimpleNamespace(rows_per_request=1000))
    app.include_router(router)
    seen.clear()
    assert [posted(app, "/", json.dumps({"text": "x" * size}).encode()).json() for size in (3, 200_000)] == [3, 200_000]
    # Once each: what was checked there is not checked again on the loop.
    assert [name.rpartition("_")[0] for name in seen] == ["epsilearn-short-bodies", "epsilearn-long-bodies"]
    assert posted(app, "/", b'{"text": 3}').json() == {"detail": "text: Input should be a valid string"}


def test_whoever_is_refused_waits_for_no_thread_that_answers(tmp_path):
    (tmp_path / "tables").mkdir()
    app = create(Configuration.from_dict({"database": "state.db", "tables": "tables"}, Path(tmp_path)))
    key = Keys(opened_store(str(tmp_path / "state.db"))).create("analyst", "anna", None, "tests")[0]

    async def calls() -> list[int]:
        limiter = anyio.to_thread.current_default_thread_limiter()
        free = int(limiter.total_tokens)
        for one in range(free):
            limiter.acquire_on_behalf_of_nowait(one)  # every thread is busy with somebody's answer
        good = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x", timeout=60) as client:
            answers = [
                await client.get("/healthz"),
                await client.get("/metrics"),
                await client.get("/openapi.json"),
                await client.get("/api/me"),
                await client.post("/api/releases/x/predict", json={"rows": [3]}, headers=good),
                await client.get("/api/keys", headers=good),
            ]
        return [answer.status_code for answer in answers]

    assert asyncio.run(asyncio.wait_for(calls(), 120)) == [200, 200, 200, 401, 422, 403]


@pytest.mark.parametrize("seed", range(20))
def test_the_shape_is_that_of_the_parsed_text(seed):
    """What the compiled pass lets by is what a parser finds within the limits, whatever stands in texts."""
    chance = np.random.default_rng(seed)
    texts = ["", "a,b", "[[[[", '"', "\\", '\\"', "{,}", "\u00e9,\u2028", "\\\\"]

    def made(depth: int) -> Any:
        kind = chance.integers(3) if depth < 5 else 2
        count = int(chance.integers(4))
        if kind == 0:
            return [made(depth + 1) for _ in range(count)]
        if kind == 1:
            return {f"{texts[chance.integers(len(texts))]}{i}": made(depth + 1) for i in range(count)}
        return [None, 1.5, True, texts[chance.integers(len(texts))]][chance.integers(4)]

    def depth_of(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)

    for _ in range(50):
        value = made(0)
        fault = shape_fault(json.dumps(value, ensure_ascii=bool(chance.integers(2))).encode(), 1)
        assert (fault is None) == (depth_of(value) <= 3), value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"rows": [1] * 1000}, None), ({"rows": [1] * 1001}, "list"), ({"rows": ["1,1" * 1000]}, None),
        ({"rows": [{str(i): 1 for i in range(10_000)}]}, None),
        ({"rows": [{str(i): 1 for i in range(10_001)}]}, "members"),
        ({str(i): 1 for i in range(64)}, None), ({str(i): 1 for i in range(65)}, "members"),
        ({"rows": [{str(i): 1 for i in range(100)}] * 1000}, None),
        ({"rows": [{str(i): 1 for i in range(101)}] * 991}, "at most 100,000 in one request"),
        ({"edges": list(range(2000))}, "a list has too many items: at most 1,000"),
        ([[1] * 600, [1] * 600], None), ({"a": [[3]]}, None), ({"a": [[[3]]]}, "deeply"),
    ],
)  # fmt: skip
def test_each_limit_is_where_it_says(value, word):
    fault = shape_fault(json.dumps(value).encode(), 10)
    assert (fault is None) if word is None else (fault is not None and word in fault)
