"""Who waits for whom: long work has threads of its own, and callers who wait for it take none from others."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from tests.service.conftest import LONGEST, points

from epsilearn.service.app import create
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.kinds import ModelKind
from epsilearn.service.lanes import Busy, Lane, Shared
from epsilearn.service.tables import Tables


def test_one_key_is_worked_on_one_after_the_other_and_others_meanwhile():
    lane, busy, done = Lane("test", threads=2), threading.Event(), []

    async def main():
        first = [asyncio.create_task(lane.run("a", lambda: (busy.wait(LONGEST), done.append("a")))) for _ in range(5)]
        await asyncio.sleep(0)
        # Five wait for "a", of which one has a thread: the other thread is free.
        await asyncio.wait_for(lane.run("b", done.append, "b"), LONGEST)
        assert done == ["b"]
        busy.set()
        await asyncio.gather(*first)

    asyncio.run(main())
    assert done == ["b", *"aaaaa"]
    assert lane._lines == {}
    lane.close()


def test_only_so_many_may_wait():
    lane, go = Lane("test", threads=1, waiting=3), threading.Event()

    async def main():
        inside = [asyncio.create_task(lane.run("a", go.wait, LONGEST)) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="ask again"):
            await lane.run("a", print)
        other = asyncio.create_task(lane.run("b", print, end=""))
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*inside, other)
        await lane.run("a", print, end="")

    asyncio.run(main())
    lane.close()


def test_all_who_wait_for_the_same_share_one_look():
    go, looks = threading.Event(), []

    def look():
        looks.append(go.wait(LONGEST))
        return len(looks)

    async def main():
        shared = Shared(Lane("test", threads=1, waiting=0), look)
        waiting = [asyncio.create_task(shared.get()) for _ in range(100)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # whoever came first gives up
        go.set()
        assert await asyncio.gather(*waiting[1:]) == [1] * 99
        assert await shared.get() == 2

    asyncio.run(main())


def test_a_shared_result_is_good_for_a_while_and_an_error_for_nobody_else():
    looks = []

    def look():
        looks.append(None)
        if len(looks) == 1:
            raise ZeroDivisionError
        return len(looks)

    async def main():
        shared = Shared(Lane("test", threads=1), look, seconds=10 * LONGEST)
        with pytest.raises(ZeroDivisionError):
            await shared.get()
        assert [await shared.get() for _ in range(3)] == [2, 2, 2]

    asyncio.run(main())


def test_a_hundred_who_look_at_once_are_told_that_the_server_is_well(tmp_path):
    (tmp_path / "tables").mkdir()
    app = create(Configuration.from_dict({"database": "state.db", "tables": "tables"}, tmp_path))

    async def main():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://x", timeout=LONGEST
        ) as client:
            return await asyncio.gather(*(client.get("/healthz") for _ in range(100)))

    assert {answer.status_code for answer in asyncio.run(main())} == {200}


def test_an_error_lets_the_next_one_in():
    lane = Lane("test", threads=1)

    async def main():
        with pytest.raises(ZeroDivisionError):
            await lane.run("a", lambda: 1 / 0)
        return await lane.run("a", lambda: 3)

    assert asyncio.run(main()) == 3
    lane.close()


class Held:
    """Work that waits until it is let go, and says when somebody is in it."""

    def __init__(self) -> None:
        self.go, self.inside = threading.Event(), threading.Semaphore(0)

    def __call__(self) -> None:
        self.inside.release()
        assert self.go.wait(LONGEST)


@pytest.fixture
def app(tmp_path, clinic):
    (tmp_path / "tables").mkdir()
    clinic.write(tmp_path / "tables", "csv").rename(tmp_path / "tables" / "table.csv")
    limits = {"requests_per_minute": 1_000_000, "calls_at_once": 1000}
    configuration = {"database": "state.db", "tables": "tables", "limits": limits}
    return create(Configuration.from_dict(configuration, tmp_path))


def test_nobody_else_waits_for_statistics_registrations_and_loading(app, tmp_path, clinic, monkeypatch):
    """More of each than there are threads in the pool that everything else is done in."""
    here = app.state.parts
    key = Keys(here.database).create("holder", "ruth", None, "tests")[0]
    schema = clinic.write_schema(tmp_path).read_text()
    held = {name: Held() for name in ("column", "register", "live")}
    column, register, live = Tables.column, Tables.register, ModelKind.live

    async def main():
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers, timeout=LONGEST) as web:

            async def post(path, **content):
                return await web.post(f"/api/{path}", json=content)

            async def opened(**settings):
                made = (await post("datasets/stays/releases", epsilon=1.0, **settings)).json()["id"]
                while (found := (await web.get(f"/api/releases/{made}")).json())["status"] == "opening":
                    await asyncio.sleep(0.05)
                assert found["status"] == "open", found
                return made

            made = await post("datasets", name="stays", file="table.csv", schema_toml=schema, epsilon=900.0)
            assert made.status_code == 201, made.text
            statistics, other = await opened(kind="statistics"), await opened(kind="statistics")
            ready, unread = [await opened(kind="model", target="died") for _ in range(2)]
            first = await post(f"releases/{ready}/predict", rows=points(1))
            assert first.status_code == 200

            # From here on, all of this takes as long as we want it to.
            monkeypatch.setattr(Tables, "column", lambda *w: (w[2] == "age" and held["column"](), column(*w))[1])
            monkeypatch.setattr(Tables, "register", lambda *w: (held["register"](), register(*w))[1])
            monkeypatch.setattr(ModelKind, "live", lambda *w: (held["live"](), live(*w))[1])
            asked = [
                *(post(f"releases/{statistics}/statistic", statistic="quantile", column="age", q=(1 + i) / 81,
                       epsilon=0.001) for i in range(70)),
                *(post("datasets", name=f"n{i}", file=f"table.csv/../x{i}.csv", schema_toml=schema, epsilon=1.0)
                  for i in range(45)),
                *(post(f"releases/{unread}/predict", rows=points(1)) for _ in range(45)),
            ]  # fmt: skip
            tasks = [asyncio.create_task(one) for one in asked]
            for work in held.values():
                await asyncio.to_thread(work.inside.acquire)

            # Others do not wait for them.
            assert (await web.get("/healthz")).status_code == 200
            assert (await post(f"releases/{ready}/predict", rows=points(1))).json() == first.json()
            found = await post(f"releases/{other}/statistic", statistic="mean", column="days", epsilon=0.1)
            assert found.status_code == 200, found.text
            assert (await web.get("/api/datasets")).status_code == 200

            for work in held.values():
                work.go.set()
            return [await task for task in tasks]

    answers = asyncio.run(main())
    statuses = [answer.status_code for answer in answers]
    refused = [answer for answer in answers[:70] if answer.status_code == 503]
    # 64 wait for the one that is being answered; the others are told to come back.
    assert (statuses[:70].count(200), len(refused)) == (65, 5)
    assert all(int(answer.headers["retry-after"]) >= 1 and "ask again" in answer.text for answer in refused)
    assert set(statuses[70:115]) == {422}
    assert set(statuses[115:]) == {200}
