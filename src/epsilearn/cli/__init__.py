"""The command line. Exit codes: 0 done, 1 failed, 2 bad use, 3 refused by the ledger, 4 refuted by an audit, 130
interrupted."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import Annotated, Any

import typer

# Each of these adds its commands to the app.
from epsilearn.cli import audit, explain, fit, ledger, model, schema, serve, stats, study  # noqa: F401
from epsilearn.cli.common import app, complain, show_warning
from epsilearn.errors import BudgetExceeded, EpsilearnError, InvalidInput, LedgerError, TamperedLedger

__all__ = ["app", "main"]

DONE, FAILED, BAD_USE, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130

# Interrupted while it puts a connection back, the database would log a traceback; one line of ours says enough.
logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())

# Typer carries its own copy of click; this is the base of everything it says about wrong words.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; an error is one line, never a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = show_warning  # which may quote a name, as an error may
    sys.exit(_run(words, as_json="--json" in words))


def _run(words: list[str], *, as_json: bool) -> int:
    try:
        if any(not _is_text(word) for word in words):
            raise InvalidInput("a word of the command is not UTF-8 text; rename the file, or write it otherwise")
        result = app(words or ["--help"], standalone_mode=False)
        if result == INTERRUPTED:  # typer takes Ctrl-C for an answer
            raise KeyboardInterrupt
        return result if isinstance(result, int) else DONE
    except EpsilearnError as error:
        return complain(str(error), _code(error), as_json)
    except _UsageError as error:
        return complain(error.format_message(), BAD_USE, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return complain("interrupted; a debit, if there was one, stands in the ledger", INTERRUPTED, as_json)
    except BrokenPipeError:
        # The reader went away (`| head`): point stdout nowhere so that Python's exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("EPSILEARN_DEBUG"):
            raise
        # Neither the text nor the trace is shown: both may hold somebody's values.
        kind = type(error).__name__
        text = f"unexpected {kind}; a debit, if there was one, stands. Set EPSILEARN_DEBUG=1 to see where it comes from"
        return complain(text, FAILED, as_json)


def _is_text(word: str) -> bool:
    """Whether it can be written down: what is no text arrives as halves of characters."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _code(error: EpsilearnError) -> int:
    if isinstance(error, (BudgetExceeded, TamperedLedger)):
        return REFUSED
    return BAD_USE if isinstance(error, (InvalidInput, LedgerError)) else FAILED


def _print_version(wanted: bool) -> None:
    if wanted:
        from epsilearn import __version__

        print(f"epsilearn {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
