"""``epsilearn schema``: what is public about a table, for a person to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from epsilearn.cli.common import AsJson, app, print_data, print_json, reserved, say, show
from epsilearn.errors import InvalidInput

__all__ = ["schema_app"]


class _WriteByDefault(TyperGroup):
    """``epsilearn schema TABLE`` is ``epsilearn schema write TABLE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["write", *args]
        return super().parse_args(ctx, args)


schema_app = typer.Typer(cls=_WriteByDefault, help="What is public about a table: write a skeleton, check it.")
app.add_typer(schema_app, name="schema")


@schema_app.command("write")
def write(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet, Arrow or libsvm; text may be gzipped.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it; - prints it.")] = Path(
        "schema.toml"
    ),
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line names the columns.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="The columns' names, if the file has none: a,b,c.")] = None,
    kind: Annotated[str | None, typer.Option("--format", help="csv, tsv, parquet, arrow or libsvm.")] = None,
) -> None:
    """Write a skeleton of a schema, from the columns' names and types only. No value is read."""
    from epsilearn.checks import check_choice
    from epsilearn.files import TableFile
    from epsilearn.schema import FORMATS, FileFormat
    from epsilearn.schema_skeleton import check_header, skeleton

    if kind is not None:
        check_choice("--format", kind, FORMATS)
    if header is False and names is None:
        raise InvalidInput("--no-header needs --names a,b,c: the columns' names, in the order of the file")
    given = None if names is None else tuple(name.strip() for name in names.split(","))
    if given is not None and header is not False:
        raise InvalidInput("--names is for a file without a header; add --no-header")
    file = TableFile.at(table, FileFormat(format=kind, header=header is not False), given)
    if header is None and file.format in ("csv", "tsv"):
        check_header(file.names())
    text = skeleton(file)
    if str(output) == "-":
        print_data(text)
        return
    if output.exists():
        raise InvalidInput(f"{output} is there already; choose another name with -o, or take it away first")
    with reserved(output) as put:
        put(text)
    say(f"{output}: {len(file.names())} columns to fill in; then: epsilearn schema check {output} {table}")


@schema_app.command("check")
def check(
    schema: Annotated[Path, typer.Argument(help="The schema, a TOML file.")],
    table: Annotated[Path | None, typer.Argument(help="A table whose header must fit; no row is read.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to be predicted.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a schema, and whether a table's header fits it. No row is read."""
    from epsilearn.files import TableFile
    from epsilearn.schema import Schema

    found = Schema.read(schema)
    if table is not None:
        file = TableFile.described(table, found)
        found = found if found.sparse else found.matched(file.names())
    if target is not None:
        found.check_target(target)
    used = [name for name, column in found.columns.items() if not column.ignored]
    facts: dict[str, Any] = {
        "columns": len(found.columns),
        "used": len(used),
        "numbers": sum(found.columns[name].bounds is not None for name in used),
        "categories": sum(found.columns[name].categories is not None for name in used),
        "rows": found.rows,
        "rows_per_person": found.rows_per_person,
        "norm": found.norm,
    }
    if target is not None:
        facts |= {"target": target, "features": found.width(target), "length": found.length(target)}
    if as_json:
        print_json(facts)
        return
    show([(name.replace("_", " "), "not stated" if fact is None else str(fact)) for name, fact in facts.items()])
    say("the schema is complete" + ("" if table is None else f", and the header of {table.name} fits it"))
