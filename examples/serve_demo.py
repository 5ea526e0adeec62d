"""A hospital's server on a generated table: prints its address, a holder's key and an analyst's; Ctrl-C stops it.

The table is generated: nothing in it is anybody's data.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.csv
from demo import SCHEMA, patients
from rich.console import Console

from epsilearn import Client
from epsilearn.client import ServerError
from epsilearn.service.configuration import Configuration
from epsilearn.service.keys import Keys
from epsilearn.service.store import opened_store

FOLDER = Path("demo-output") / "service"
ROWS, SEED = 10_000, 2026
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8750

console = Console(highlight=False)


def prepare() -> Path:
    """The table, its schema and a configuration, in a folder of their own."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    tables = FOLDER / "tables"
    tables.mkdir(parents=True)
    pyarrow.csv.write_csv(patients(ROWS, SEED), tables / "patients.csv")
    (tables / "schema.toml").write_text(SCHEMA.replace("rows = 30000", f"rows = {ROWS}"))
    config = FOLDER / "config.toml"
    config.write_text(f'database = "state.db"\ntables = "tables"\nport = {PORT}\n')
    return config


def wait_for(client: Client, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(server.returncode or 1)
        try:
            client.datasets()
            return
        except ServerError:
            time.sleep(0.1)
    sys.exit("the server did not answer within a minute")


def fill(holder: Client) -> None:
    """A data set with a budget, and something to ask of each kind."""
    schema = (FOLDER / "tables" / "schema.toml").read_text()
    holder.register("stays", "patients.csv", schema, epsilon=8.0, delta=1e-5, rule="pure")
    about = {"target": "readmitted", "delta": 1e-6}
    holder.open("stays", "process", epsilon=1.0, kernel="linear", note="predictions for the wards", **about)
    holder.open("stays", "model", epsilon=1.0, note="to be published", **about)
    holder.open("stays", "statistics", epsilon=2.0, note="for the yearly report")


def main() -> None:
    """Start, fill, print, wait."""
    # Told to end, it ends the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = prepare()
    keys = Keys(opened_store(Configuration.read(config).database, make=True))
    holder = keys.create("holder", "ruth", None, "serve-demo")[0]
    analyst = keys.create("analyst", "anna", ["stays"], "serve-demo")[0]
    server = subprocess.Popen([sys.executable, "-m", "epsilearn.cli", "serve", str(config)], stdout=subprocess.DEVNULL)
    try:
        client = Client(f"http://127.0.0.1:{PORT}", holder)
        wait_for(client, server)
        fill(client)
        console.print(f"\n[bold]A server on a generated table of {ROWS:,} hospital stays:[/] {client.url}\n")
        console.print(f"  holder's key    {holder}\n  analyst's key   {analyst}\n", soft_wrap=True)
        console.print("Open the address in a browser and sign in with either. Ctrl-C stops it.")
        server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait(timeout=60)


if __name__ == "__main__":
    main()
