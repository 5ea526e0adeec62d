/* The place of the log of calls. */

import { whileBusy } from "./busy.js";
import { get } from "./calls.js";
import { actions, button, faultBox, make, moment, part } from "./elements.js";
import { announce } from "./frame.js";
import { refreshButton } from "./places.js";
import { cell, table } from "./tables.js";
import { count } from "./words.js";

export async function logView() {
  const page = 100;
  const { calls } = await get(`/api/log?count=${page}`);
  const { counts } = await get(`/api/log/counts?count=${page}`);
  const fault = faultBox();
  const body = make("tbody", {}, calls.map(logRow));
  const heads = ["When", "Who", "Call", "Status", "From"].map((text) => make("th", { scope: "col" }, text));
  let last = calls.length ? calls[calls.length - 1].number : 0;
  const older = button("Older", "log-older", () => whileBusy(older, "Loading\u2026", fault, async () => {
    const next = (await get(`/api/log?before=${last}&count=${page}`)).calls;
    body.append(...next.map(logRow));
    if (next.length) last = next[next.length - 1].number;
    if (next.length < page) older.hidden = true;
    announce(next.length ? `${next.length} more calls` : "There are no older calls");
  }));
  older.hidden = calls.length < page;
  return [
    make("div", { class: "heading" }, make("h1", {}, "Log of calls"), actions(refreshButton())),
    make("p", { class: "soft" }, "Who called what, the newest first. What was asked and answered is not in it."),
    make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Log of calls" },
      make("table", {}, make("thead", {}, make("tr", {}, heads)), body)),
    fault, actions(older),
    part("Counted, not listed", null, countTable(counts)),
  ];
}

/** Calls that were refused at the door, by the minute, and those too old for the list, by the day. */
function countTable(counts) {
  const rows = counts.map((one) => make("tr", { "data-test": "count-row" },
    cell(one.time.replace("T", " ")), cell(one.who || "nobody known"),
    cell(one.path ? make("code", {}, `${one.method} ${one.path}`) : "refused at the door", "brief"),
    cell(String(one.status)), cell(one.address, "brief"), cell(count(one.calls), "number")));
  const heads = [["When (UTC)"], ["Who"], ["Call"], ["Status"], ["From"], ["Calls", "number"]];
  return table("Counted calls", heads, rows, "No call has been refused for its key or for coming too often.");
}

function logRow(call) {
  const good = call.status < 400;
  return make("tr", { "data-test": "log-row", "data-number": call.number },
    cell(moment(call.time)), cell(call.who || "nobody known"),
      cell(make("code", {}, `${call.method} ${call.path}`), "brief"),
    cell(make("span", { class: good ? "state good" : "state bad" }, String(call.status))),
      cell(call.address, "brief"));
}
