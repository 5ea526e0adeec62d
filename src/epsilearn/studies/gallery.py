"""One page with everything that a run of several studies found; it needs nothing but the images beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape

from epsilearn.studies.catalogue import describe
from epsilearn.studies.study import Result, Sheet

__all__ = ["Entry", "page"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5b616a; --page: #ffffff; --card: #f5f6f8; --line: #d8dce1;
  --link: #005a8f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a4abb5; --page: #16181b; --card: #1f2226;
  --line: #363b42; --link: #7cc4f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .75rem; }
h3 { font-size: .8rem; letter-spacing: .05em; text-transform: uppercase; color: var(--soft); margin: 1rem 0 .25rem; }
p, ul { margin: 0 0 .5rem; } ul { padding-left: 1.2rem; }
a { color: var(--link); }
code { font: .9em ui-monospace, Menlo, Consolas, monospace; }
nav ol { margin: 1rem 0 2rem; padding-left: 1.5rem; }
section { border-top: 1px solid var(--line); padding: 1.75rem 0 .5rem; }
.lead, .name, .caption { color: var(--soft); }
.name { font-size: .85rem; font-weight: normal; white-space: nowrap; }
.texts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 2rem; }
figure { margin: 1.25rem 0; }
.wide { overflow-x: auto; }
/* Figures are drawn in ink on white: they keep their paper in the dark, and their size on a phone. */
figure .wide { background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
figure img { display: block; width: 100%; min-width: 38rem; height: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .25rem 0 1rem; }
.caption { font-size: .9rem; margin: 1rem 0 .25rem; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; vertical-align: bottom; }
.text { text-align: left; min-width: 6.5rem; }
details { margin: .5rem 0 1rem; } summary { cursor: pointer; color: var(--link); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .85rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; }
.skipped { background: var(--card); border-left: 4px solid #d55e00; padding: .6rem .9rem; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  figure, tr { break-inside: avoid; } h2, h3, .caption { break-after: avoid; } figure img { min-width: 0; }
  .wide { overflow: visible; } }
"""


@dataclass(frozen=True)
class Entry:
    """A study of the page: what it found, or why it was not run."""

    name: str
    result: Result | None = None
    reason: str = ""


def page(entries: Sequence[Entry]) -> str:
    """The whole page as HTML."""
    items = "\n".join(f'<li><a href="#{_html(e.name)}">{_html(describe(e.name).title)}</a></li>' for e in entries)
    sections = "\n".join(map(_section, entries))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>epsilearn: the papers' experiments</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>The papers' experiments, run again</h1>
<p class="lead">What the sources of <code>epsilearn</code> show, and what this run found. Noise comes from the
operating system's random bits, so that another run differs by it.</p>
</header>
<nav aria-label="Studies"><ol>
{items}
</ol></nav>
<main>
{sections}
</main>
</body>
</html>
"""


def _html(text: object) -> str:
    return escape(str(text), quote=True)


def _section(entry: Entry) -> str:
    about = describe(entry.name)
    title = f'<h2>{_html(about.title)} <span class="name"><code>{_html(entry.name)}</code></span></h2>'
    if entry.result is None:
        body = f'<p class="skipped">Skipped, because {_html(entry.reason)}.</p>'
        texts = f"<h3>What the paper shows</h3><p>{_html(about.shows)}</p>"
        return f'<section id="{_html(entry.name)}">\n{title}\n{texts}\n{body}\n</section>'
    return "\n".join(
        [
            f'<section id="{_html(entry.name)}">',
            title,
            '<div class="texts">',
            f"<div><h3>What the paper shows</h3><p>{_html(about.shows)}</p></div>",
            f"<div><h3>What we see, in a full run</h3><p>{_html(about.seen)}</p></div>",
            "</div>",
            "<h3>In this run</h3>",
            "<ul>" + "".join(f"<li>{_html(line)}</li>" for line in entry.result.seen) + "</ul>",
            *(_figure(name, drawing.words) for name, drawing in entry.result.figures.items()),
            *map(_table, entry.result.sheets),
            _settings(entry.result),
            "</section>",
        ]
    )


def _figure(name: str, words: str) -> str:
    image = f'<img src="{_html(name)}.svg" alt="{_html(words)}">'
    return f'<figure><div class="wide"><a href="{_html(name)}.png">{image}</a></div></figure>'


def _table(sheet: Sheet) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        filled = [*texts, *[""] * (len(sheet.columns) - len(texts))]
        kinds = [' class="text"' if place < sheet.texts else "" for place in range(len(filled))]
        return "".join(f"<{tag}{kind}>{_html(text)}</{tag}>" for kind, text in zip(kinds, filled, strict=True))

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in sheet.rows)
    head = f"<thead><tr>{cells('th', sheet.columns)}</tr></thead>"
    # A caption inside the table would be as wide as it, and run off a phone's screen.
    title = f'<p class="caption">{_html(sheet.title)}</p>'
    table = f'<table aria-label="{_html(sheet.title)}">{head}\n<tbody>\n{body}\n</tbody></table>'
    return f'{title}\n<div class="wide">{table}</div>'


def _settings(result: Result) -> str:
    pairs = {**asdict(result.settings), **{f"seed of {name}": seed for name, seed in result.seeds.items()}}
    items = "".join(f"<dt>{_html(name)}</dt><dd>{_html(_short(value))}</dd>" for name, value in pairs.items())
    return f"<details><summary>Settings</summary><dl>{items}</dl></details>"


def _short(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
