"""``epsilearn serve``: the trusted learner over HTTP, and ``epsilearn key``: who may call it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from epsilearn.cli.common import AsJson, app, console, print_json, say
from epsilearn.errors import InvalidInput

__all__ = ["key_app", "serve"]

key_app = typer.Typer(help="The keys of a server.")
app.add_typer(key_app, name="key")

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The server's TOML file.")]


@app.command()
def serve(config: Config) -> None:
    """Serve private answers over HTTP, as a configuration file says, until told to stop."""
    server = _server()
    from epsilearn.service.configuration import Configuration

    found = Configuration.read(config)
    scheme = "http" if found.certificate is None else "https"
    say(f"serving at {scheme}://{found.host}:{found.port} with {found.workers} worker(s); Ctrl-C stops it")
    server(config)


@key_app.command("create")
def key_create(
    config: Config,
    name: Annotated[str, typer.Option(help="Whose key it is; written into the ledger and the log.")],
    role: Annotated[str, typer.Option(help="holder or analyst.")] = "analyst",
    dataset: Annotated[
        list[str] | None, typer.Option(help="A data set it is for; may be repeated. Without any: all.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="After which it expires.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and tell it this once."""
    text, made = _keys(config).create(role, name, dataset or None, "command line", days)
    if as_json:
        print_json({"key": text, "id": made})
        return
    # As it is, however narrow the terminal: somebody will copy it.
    say(f"key   {text}")
    say(f"id    {made}")
    say("Only its digest is stored: keep the key, it is not shown again.")


@key_app.command("list")
def key_list(config: Config, as_json: AsJson = False) -> None:
    """List all keys, without their secrets."""
    found = _keys(config).listed()
    if as_json:
        print_json(found)
        return
    table = Table("id", "role", "name", "data sets", "created", "expires", "revoked", box=None)
    for key in found:
        sets = "all" if key["datasets"] is None else ", ".join(key["datasets"]) or "none"
        ends = [(key[name] or "")[:16].replace("T", " ") for name in ("created", "expires", "revoked")]
        table.add_row(key["id"], key["role"], key["name"], sets, *ends)
    console.print(table)


@key_app.command("revoke")
def key_revoke(config: Config, key: Annotated[str, typer.Argument(metavar="ID", help="See `list`.")]) -> None:
    """End a key, at once and for good."""
    if not _keys(config).revoke(key):
        raise InvalidInput("there is no key of that id; see `epsilearn key list`")
    say("revoked")


def _server() -> Any:
    try:
        from epsilearn.service.serve import serve as run
    except ModuleNotFoundError as error:
        raise InvalidInput(f"serving needs {error.name}: run `pip install 'epsilearn[serve]'`") from None
    return run


def _keys(config: Path) -> Any:
    from epsilearn.service.configuration import Configuration
    from epsilearn.service.keys import Keys
    from epsilearn.service.store import opened_store

    return Keys(opened_store(Configuration.read(config).database, make=True))
