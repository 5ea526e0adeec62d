"""Running a server: one at a time on a database, with as many processes as it was told."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import uvicorn

from epsilearn.service import store
from epsilearn.service.app import create
from epsilearn.service.configuration import Configuration
from epsilearn.service.connections import backlog, tls_context
from epsilearn.service.fencing import fenced, only_server
from epsilearn.service.metrics import MULTIPROCESS
from epsilearn.service.releases import sweep

__all__ = ["application", "serve"]

_CONFIGURATION, _PARENT = "EPSILEARN_SERVICE_CONFIGURATION", "EPSILEARN_SERVICE_PARENT"
_TERM = "EPSILEARN_SERVICE_TERM"


def serve(path: str | Path) -> None:
    """Serve as a configuration file says, until told to stop.

    Parameters
    ----------
    path : str or Path
        The TOML file.
    """
    configuration = Configuration.read(path)
    tls_context(configuration)  # complains at once, before any process is started
    _be_quiet()
    _take_short_turns()
    # Once everything is finished, uvicorn gives the signal on: to whom it would otherwise end at once, unwritten.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    database = store.opened_store(configuration.database, make=True)
    with only_server(database) as term:
        sweep(fenced(database, term))
        options: dict[str, Any] = {
            "host": configuration.host, "port": configuration.port, "server_header": False,
            # Deadlines, encryption and the cap on connections are this protocol's.
            "http": "epsilearn.service.connections:Connection", "ws": "none", "loop": "asyncio",
            "backlog": backlog(configuration.limits.connections),
            "timeout_keep_alive": configuration.limits.keep_alive_seconds,
            # Half-open connections count in this; it is for calls that go on after their connection was given up.
            "limit_concurrency": 2 * configuration.limits.connections,
            # Calls are in the database's log; lines of uvicorn's would hold whatever somebody puts into a path, and its
            # warnings are one for each malformed request.
            "access_log": False, "log_level": "error", "timeout_graceful_shutdown": 30, "proxy_headers": False,
        }  # fmt: skip
        if configuration.workers == 1:
            uvicorn.run(create(configuration, term), **options)
            return
        counts = tempfile.mkdtemp(prefix="epsilearn-metrics-")
        os.environ |= {_CONFIGURATION: str(Path(path).absolute()), _PARENT: str(os.getpid()), MULTIPROCESS: counts}
        os.environ[_TERM] = str(term)
        try:
            uvicorn.run("epsilearn.service.serve:application", factory=True, workers=configuration.workers, **options)
        finally:
            shutil.rmtree(counts, ignore_errors=True)


def application() -> Any:
    """The application in one of several processes, which ends with the one that started it."""
    _be_quiet()
    _take_short_turns()
    threading.Thread(target=_end_with, args=(int(os.environ[_PARENT]),), daemon=True).start()
    return create(Configuration.read(os.environ[_CONFIGURATION]), int(os.environ[_TERM]))


def _be_quiet() -> None:
    """Once for all threads: a warning of some library could depend on the rows."""
    warnings.simplefilter("ignore")


def _take_short_turns() -> None:
    """Let threads take turns more often than every five milliseconds.

    An answer's thread asks for the interpreter after every call of the database, a hundred times; beside an event loop
    that is never idle it would wait that long for each turn.
    """
    sys.setswitchinterval(0.0005)


def _end_with(parent: int) -> None:
    # A process that went on alone would answer beside the next server.
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
