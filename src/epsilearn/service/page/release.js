/* The place of one release: how it stands, what is left of it, how it was opened, and asking it. */

import { budgetBar } from "./budget.js";
import { dataSetPath, get, post, releasePath, told } from "./calls.js";
import { confirmFirst } from "./dialogs.js";
import { documentsPart } from "./documents.js";
import { actions, button, facts, make, moment, part, state } from "./elements.js";
import { announce, byId } from "./frame.js";
import { dataSetAddress, go, isCurrent, refreshButton, trail } from "./places.js";
import { predictionPart } from "./predictions.js";
import { explanationPart, promiseBox } from "./promise.js";
import { isHolder } from "./session.js";
import { statisticPart } from "./statistics.js";
import { count, KERNELS, KINDS, MODELS, number, percent, price, several } from "./words.js";

const SECOND = 1000;
const POLL = SECOND;

export async function releaseView(id, mine) {
  const release = await get(releasePath(id));
  const details = await get(dataSetPath(release.dataset));
  const bar = budgetBar(details.name);
  bar.show(details.balance);
  const left = leftPart(release);
  const context = { release, details, refresh: () => refreshBudget(release, bar, left) };
  if (release.status === "opening") follow(release, mine);
  return [
    trail(["#/", "Data sets"], [dataSetAddress(release.dataset), release.dataset]),
    make("div", { class: "heading" }, make("h1", {}, KINDS[release.kind].title(release.target)),
      actions(refreshButton(), closeButton(release))),
    make("p", { class: "soft" }, state(release.status, { "data-test": "release-status" }),
      ` \u00b7 opened by ${release.who}, `, moment(release.created), release.note ? ` \u00b7 ${release.note}` : ""),
    ...statusPart(release), promiseBox(release), left.node,
    part(`Budget of ${details.name}`, null, bar.node),
    ...documentsPart(release), ...askingPart(context),
    ...explanationPart(release), settingsPart(release),
  ];
}

/** Look every second whether a release has been opened, as long as its page is shown. */
function follow(release, mine) {
  setTimeout(async () => {
    if (!isCurrent(mine)) return;
    const clock = byId("view").querySelector("[data-test=opening-clock]");
    try {
      const now = await get(releasePath(release.id));
      if (!isCurrent(mine)) return;
      if (now.status !== "opening") {
        announce(now.status === "open" ? "The release is open." : "Opening has failed.");
        await go(false);
        return;
      }
      if (clock) clock.textContent = openingFor(release);
    } catch (error) {
      if (clock) clock.textContent = told(error);
    }
    follow(release, mine);
  }, POLL);
}

function openingFor(release) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(release.created)) / SECOND));
  return `${several(seconds, "second", "seconds")}`;
}

function statusPart(release) {
  if (release.status === "opening") {
    return [make("div", { class: "panel", "data-test": "opening" },
      make("p", {}, "The rows are being read and the model is fitted: ",
        make("span", { "data-test": "opening-clock" }, openingFor(release)),
        " so far. This page follows; you may leave it."),
      make("div", { class: "running", role: "progressbar", "aria-label": "Opening the release" }, make("span")))];
  }
  if (release.status === "failed") {
    return [make("p", { class: "fault", "data-test": "failed" },
      `Opening failed${release.message ? `: ${release.message}` : "."}`)];
  }
  return [];
}

/** What may still be asked, in words that can be brought up to date. */
function leftPart(release) {
  const node = make("p", { "data-test": "left" });
  const show = (left) => {
    node.textContent = release.status === "open" ? leftText(release, left) : "";
    node.hidden = !node.textContent;
  };
  show(release.left);
  return { node, show };
}

function leftText(release, left) {
  if (release.kind === "model") return "It may be asked without limit.";
  if (release.kind === "statistics") {
    return `Left to ask for: epsilon ${number(left.epsilon)} of ${number(release.epsilon)}.`;
  }
  const more = (value, what) => several(value, `more different ${what}`, `more different ${what}s`);
  if (release.kind === "process") {
    if (left.points === null) return "Any number of different points may still be asked.";
    return `${more(left.points, "point")} may be asked; points that were asked before do not count.`;
  }
  const times = several(left.updates, "more time", "more times");
  return `${more(left.questions, "question")} may be asked; the private model may answer ${times}.`;
}

async function refreshBudget(release, bar, left) {
  const [details, now] = await Promise.all([get(dataSetPath(release.dataset)), get(releasePath(release.id))]);
  bar.show(details.balance);
  left.show(now.left);
  release.left = now.left;
  return details;
}

function askingPart(context) {
  const { release } = context;
  if (release.status === "closed") return [part("Ask", null,
    make("p", {}, "This release is closed: it takes no more questions."))];
  if (release.status !== "open") return [];
  if (release.kind === "statistics") return [statisticPart(context)];
  if (!release.columns.length) return [part("Try a prediction", null,
    make("p", {}, "Its columns are numbered. Download the model, and ask it where you are."))];
  return [predictionPart(context)];
}

function settingsPart(release) {
  const set = release.settings;
  const alpha = set.alpha === "auto" ? "chosen from public numbers" : number(set.alpha);
  return part("How it was opened", null, facts([
    ["Kind", KINDS[release.kind].name], release.target !== null ? ["Target", release.target] : null,
    set.model ? ["Model", MODELS[set.model]] : null,
    set.kernel && (!set.model || set.model === "landmark") ? ["Kernel", KERNELS[set.kernel]] : null,
    set.alpha !== undefined ? ["Alpha", alpha] : null,
    set.max_points && set.kernel === "rbf" ? ["Different points", count(set.max_points)] : null,
    set.questions ? ["Questions", count(set.questions)] : null,
    set.failure ? ["Chance of failure", percent(set.failure)] : null,
    ["Budget asked for", price(release.epsilon, release.delta)],
    release.note ? ["Note", release.note] : null, ["Id", make("code", {}, release.id)],
  ]));
}

function closeButton(release) {
  if (!isHolder() || release.status !== "open") return null;
  return button("Close this release", "close-release", () => confirmFirst({
    test: "close-release-dialog", title: "Close this release?", action: "Close it for good", running: "Closing\u2026",
    content: [make("p", {},
      "It will take no more questions, and it cannot be opened again. Its documents stay. What was debited stays " +
      "debited.")],
    work: async () => {
      await post(`${releasePath(release.id)}/close`);
      await go(false);
    },
  }));
}
