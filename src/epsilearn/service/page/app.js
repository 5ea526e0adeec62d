/* The page of the service: one script, no framework, nothing from elsewhere.

   Places, in location.hash: "#/" all data sets, "#/datasets/NAME", "#/releases/ID", "#/keys", "#/log".

   Hooks for browser tests (data-test unless said otherwise; static ones are also ids):
     sign-in-form, sign-in-key, sign-in-show, sign-in-button, sign-in-fault; who, sign-out;
     nav-datasets, nav-keys, nav-log
     dataset (data-name)       a data set's card          dataset-link     the link in it
     budget (data-name)        a budget bar with its text; in it: meter (role=meter), budget-text
     refresh                   read the data set or the release again
     register-open, register-form, register-review; open-release-open, open-release-form, show-bill, bill, open-release
     spending-plot, spending-row (data-entry), release-row (data-release), release-link, column-row (data-column)
     release-status, opening, promise, meaning, left, download (data-document), close-release
     predict-form, predict-button, prediction, prediction-value, prediction-score, prediction-source
     statistic-form, ask-button, debit, left-afterwards, statistic, statistic-value, statistic-width, statistic-cost
     key-row (data-key), create-key-open, create-key-form, create-key, new-key, copy-key, key-kept, revoke
     log-row (data-number), log-older
     register-dialog, open-release-dialog, statistic-dialog, close-release-dialog, create-key-dialog, revoke-dialog
     failed                    why opening failed          show-all, try-again, opening-clock
     confirm, back, cancel     the buttons of a dialog     fault           what went wrong, beside its cause
   Inputs have the name of the request's field: [name=epsilon], [name=target], in predictions
   [data-column=...] and [data-missing=...]. */
"use strict";

(() => {
  const NOTHING = "\u2013"; // what stands where there is no value
  const SPACE = "\u00a0";
  const KEY_STORE = "epsilearn-key";
  const SHOWN_AT_FIRST = 25;
  const POLL = 1000;

  const KINDS = {
    process: {
      name: "Gaussian process release",
      title: (target) => `Gaussian process release of ${target}`,
      about: "Answers predictions of one column, any number of them, for one debit. The model stays on the server.",
      promise: "All answers together keep this promise, however many there are. The same point has the same answer, " +
        "whoever asks.",
    },
    interactive: {
      name: "Interactive session",
      title: (target) => `Interactive session about ${target}`,
      about: "Answers a set number of questions. A public hypothesis answers where it is close enough; the private " +
        "model answers, and mends it, where it is not.",
      promise: "All answers together keep this promise. A public hypothesis answers where it is close enough; the " +
        "private model answers where it is not.",
    },
    model: {
      name: "Model to download",
      title: (target) => `Model of ${target}`,
      about: "Fits a model that analysts can download and use anywhere, as often as they like, for one debit.",
      promise: "The model was fitted under this promise. It can be downloaded and used anywhere, as often as you " +
        "like; nothing more is debited.",
    },
    statistics: {
      name: "Statistics",
      title: () => "Leave to ask for statistics",
      about: "Lets analysts ask for counts, means and the like, up to an epsilon in all. Nothing is debited now; " +
        "each answer is, when it is asked.",
      promise: "All statistics of this release together stay within this. Each is debited from the data set's budget " +
        "when it is first asked.",
    },
  };
  const STATES = {
    open: ["open", "good"], opening: ["being opened", ""], failed: ["failed", "bad"], closed: ["closed", ""],
    "delivered": ["delivered", "good"], "spent, not delivered": ["spent, not delivered", "bad"],
  };
  const STATISTICS = {
    mean: "Mean", sum: "Sum", variance: "Variance", median: "Median", quantile: "Quantile", count: "Count",
      histogram: "Histogram",
  };
  const DOCUMENTS = {
    "report.html": "Report for people", "model.json": "Model", "guarantee.json": "Guarantee",
  };
  const MODELS = {
    logistic: "logistic regression", svm: "support vector machine", linear: "linear regression", lasso: "lasso",
    "sparse-logistic": "sparse logistic regression", landmark: "landmark (kernel) model",
  };
  const KERNELS = { rbf: "Gaussian (RBF)", polynomial: "polynomial", linear: "linear" };
  const RULES = {
    "": "automatic: pure if delta is 0, otherwise zcdp", pure: "pure: epsilons are added up",
    zcdp: "zcdp: suits many small debits", renyi: "renyi: suits debits of many kinds",
  };

  const session = { key: null, me: null };
  let visit = 0; // every change of place has its number, so that late answers for an earlier one are dropped
  let counter = 0;

  const byId = (id) => document.getElementById(id);

  // ------------------------------------------------------------------------------------------------------ elements

  /** An element. Text goes in as text nodes only, so nothing from the server is ever read as HTML. */
  function make(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
  }

  function draw(tag, attributes = {}, ...children) {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }

  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(name, value);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }

  function button(text, test, click, kind = "") {
    return make("button", { type: click ? "button" : "submit", class: kind || null, "data-test": test, click }, text);
  }

  function actions(...buttons) {
    return make("div", { class: "actions" }, ...buttons);
  }

  function faultBox() {
    return make("p", { class: "fault", role: "alert", "data-test": "fault" });
  }

  function part(title, extra, ...children) {
    const heading = make("h2", {}, title);
    const top = extra ? make("div", { class: "heading" }, heading, extra) : heading;
    return make("section", { class: "part" }, top, ...children);
  }

  function facts(pairs, attributes = {}) {
    const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== "");
    return make("dl", { class: "facts", ...attributes }, shown.flatMap(([name, value, test]) => [
      make("dt", {}, name), make("dd", { "data-test": test }, value),
    ]));
  }

  function state(word, attributes = {}) {
    const [text, kind] = STATES[word] || [word, ""];
    return make("span", { class: `state ${kind}`.trim(), ...attributes }, text);
  }

  /** A table in a box of its own that scrolls; the box can be reached by keyboard. */
  function table(label, heads, rows, empty) {
    if (!rows.length) return make("p", { class: "soft" }, empty);
    const head = heads.map(([text, kind]) => make("th", { scope: "col", class: kind || null }, text));
    const body = make("tbody", {}, rows.slice(0, SHOWN_AT_FIRST));
    const box = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
      make("table", {}, make("thead", {}, make("tr", {}, head)), body));
    if (rows.length <= SHOWN_AT_FIRST) return box;
    const more = button(`Show all ${count(rows.length)}`, "show-all", () => {
      body.replaceChildren(...rows);
      more.remove();
      box.focus();
    });
    return make("div", {}, box, actions(more));
  }

  function cell(content, kind = null) {
    return make("td", { class: kind }, ...[content].flat());
  }

  function rowHead(content) {
    return make("th", { scope: "row" }, content);
  }

  // ------------------------------------------------------------------------------------------------ numbers, words

  /** Up to four significant digits; very small and very large ones with an exponent. */
  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) {
      return Number(value.toPrecision(4)).toExponential().replace("e+", "e");
    }
    if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: size < 1e5 ? 1 : 0 });
    return String(Number(value.toPrecision(4)));
  }

  function count(value) {
    return value.toLocaleString("en", { maximumFractionDigits: 0 });
  }

  function several(value, one, many) {
    return `${count(value)} ${value === 1 ? one : many}`;
  }

  /** A share as a percentage that says 0 or 100 only where it is exactly that. */
  function percent(share) {
    const value = share * 100;
    if (value <= 0) return `0${SPACE}%`;
    if (value >= 100) return `100${SPACE}%`;
    if (value > 99) return `${Math.floor(value * 10) / 10}${SPACE}%`;
    if (value >= 10) return `${Math.round(value)}${SPACE}%`;
    return `${Number(value.toPrecision(2))}${SPACE}%`;
  }

  function price(epsilon, delta) {
    return `epsilon${SPACE}${number(epsilon)}${delta ? `, delta${SPACE}${number(delta)}` : ""}`;
  }

  function moment(text) {
    const date = new Date(text);
    const shown = date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const title = date.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    return make("time", { datetime: text, title }, shown);
  }

  /** Sentences of the server begin small; names of fields and columns that they begin with stay as they are. */
  function sentence(text) {
    const common = /^(an?|at|give|it|its|nothing|only|questions|somebody|the|there|this|unexpected)\b/;
    return common.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  }

  function announce(text) {
    byId("announcement").textContent = text;
  }

  // ------------------------------------------------------------------------------------------------------- calling

  class Failure extends Error {}

  /** Ask the server. A key that is no longer valid signs out, wherever it is noticed. */
  async function ask(method, path, body) {
    const key = session.key;
    const headers = { Authorization: `Bearer ${key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch {
      throw new Failure("The server cannot be reached. Is it running, and are you connected?");
    }
    if (response.ok) return response;
    const text = await refusal(response);
    if (response.status === 401 && key === session.key) signOut(text);
    throw new Failure(text);
  }

  async function refusal(response) {
    try {
      return sentence((await response.json()).error);
    } catch {
      return `The server answered ${response.status} and said no more.`;
    }
  }

  const get = async (path) => (await ask("GET", path)).json();
  const post = async (path, body) => (await ask("POST", path, body)).json();
  const dataSetPath = (name) => `/api/datasets/${encodeURIComponent(name)}`;
  const releasePath = (id) => `/api/releases/${encodeURIComponent(id)}`;

  /** While work runs its button is disabled and says so; what goes wrong is told in the fault box. */
  async function whileBusy(pressed, words, fault, work) {
    const before = pressed.textContent;
    const focused = document.activeElement === pressed;
    fault.textContent = "";
    pressed.disabled = true;
    pressed.textContent = words;
    try {
      await work();
    } catch (error) {
      fault.textContent = told(error);
    } finally {
      pressed.disabled = false;
      pressed.textContent = before;
      // A disabled button loses the focus; give it back unless the work has put it elsewhere.
      if (focused && document.activeElement === document.body && pressed.isConnected) pressed.focus();
    }
  }

  function told(error) {
    if (error instanceof Failure) return error.message;
    console.error(error);
    return "Something went wrong in this page. Reload it and look whether the budget has moved.";
  }

  async function download(release, name) {
    const blob = await (await ask("GET", `${releasePath(release.id)}/documents/${name}`)).blob();
    const address = URL.createObjectURL(blob);
    const link = make("a", { href: address, download: `${release.dataset}-${release.id}-${name}`, hidden: true });
    document.body.append(link);
    link.click();
    link.remove();
    // The browser reads the blob after the click; a minute is plenty.
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  // --------------------------------------------------------------------------------------------------- budget bars

  /** A bar that can be shown a new balance; a part that is being added is drawn in another colour. */
  function budgetBar(name) {
    const gone = make("span");
    const added = make("span", { class: "added" });
    const meter = make("div", {
      class: "meter", role: "meter", "data-test": "meter", "aria-label": `Budget of ${name}`, "aria-valuemin": "0",
        "aria-valuemax": "100",
    }, gone, added);
    const text = make("p", { class: "text", "data-test": "budget-text" });
    const more = make("p", { class: "soft" });
    const node = make("div", { class: "budget", "data-test": "budget", "data-name": name }, meter, text, more);
    const show = (balance, before = null) => {
      const from = before ? before.used : balance.used;
      gone.style.width = `${Math.min(1, from) * 100}%`;
      gone.classList.toggle("full", balance.used >= 1);
      added.style.width = `${Math.max(0, Math.min(1, balance.used) - from) * 100}%`;
      meter.setAttribute("aria-valuenow", (Math.min(1, balance.used) * 100).toPrecision(3));
      meter.setAttribute("aria-valuetext", budgetText(balance));
      text.textContent = budgetText(balance);
      more.textContent = budgetNote(balance);
    };
    return { node, show };
  }

  function budgetText(balance) {
    const rule = `rule${SPACE}${balance.rule}`;
    if (balance.rule === "pure") {
      const spent = `epsilon${SPACE}${number(balance.spent_epsilon)} of${SPACE}${number(balance.epsilon)} spent`;
      return `${spent}, ${percent(balance.used)} used; ${rule}`;
    }
    // Under the other rules debits add up to less than their plain sum, so the sum is told apart.
    return `${percent(balance.used)} of ${price(balance.epsilon, balance.delta)} used; ${rule}`;
  }

  function budgetNote(balance) {
    const debits = several(balance.debits, "debit", "debits");
    if (balance.remaining_epsilon <= 0) return `${debits}; nothing is left`;
    const rest = `epsilon${SPACE}${number(balance.remaining_epsilon)}`;
    if (balance.rule === "pure") {
      const deltas = balance.delta
        ? `, delta${SPACE}${number(balance.spent_delta)} of${SPACE}${number(balance.delta)}` : "";
      return `${debits}${deltas}; ${rest} left`;
    }
    const sum = balance.debits ? `, epsilon${SPACE}${number(balance.spent_epsilon)} as a plain sum` : "";
    return `${debits}${sum}; one more of up to ${rest} fits`;
  }

  function shownBudget(name, balance, before = null) {
    const bar = budgetBar(name);
    bar.show(balance, before);
    return bar.node;
  }

  // --------------------------------------------------------------------------------------------------------- plot

  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const STEPS = [
    SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR,
      2 * HOUR, 6 * HOUR, 12 * HOUR,
    DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY, 365 * DAY, 5 * 365 * DAY,
  ];

  /** The share of the budget that was used, over time. Drawn at its real width, so that its text keeps its size. */
  function spendingPlot(details) {
    const box = make("div", { "data-test": "spending-plot" });
    const paint = () => box.replaceChildren(spendingDrawing(details, Math.max(280, box.clientWidth || 640)));
    let width = 0;
    new ResizeObserver(() => {
      if (box.clientWidth === width || !box.isConnected) return;
      width = box.clientWidth;
      paint();
    }).observe(box);
    const caption = details.spending.length
      ? "Each step is a debit. At the dashed line nothing more can be released, by anybody."
      : "Nothing has been debited yet.";
    return make("figure", {}, box, make("figcaption", {}, caption));
  }

  function spendingDrawing(details, width) {
    const height = 230, left = 46, right = width - 12, top = 30, bottom = height - 44;
    const times = details.spending.map((debit) => Date.parse(debit.time));
    const start = Math.min(Date.parse(details.created), ...times);
    const end = Math.max(Date.now(), start + MINUTE, ...times);
    const across = (time) => left + ((time - start) / (end - start)) * (right - left);
    const up = (share) => bottom - Math.min(1, share) * (bottom - top);
    const titles = { title: `plot-title-${++counter}`, desc: `plot-desc-${counter}` };
    return draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-labelledby": `${titles.title} ${titles.desc}` },
      draw("title", { id: titles.title }, `Budget of ${details.name} used over time`),
      draw("desc", { id: titles.desc }, plotDescription(details)),
      shareAxis(left, right, up), timeAxis(start, end, across, bottom, width),
      spendingCurve(details.spending, times, [start, end], across, up));
  }

  function plotDescription(details) {
    const last = details.spending[details.spending.length - 1];
    if (!last) return "No debits so far: 0 % used.";
    const debits = several(details.spending.length, "debit", "debits");
    return `${debits}; ${percent(last.used)} used after the last one, ${new Date(last.time).toLocaleString()}.`;
  }

  function shareAxis(left, right, up) {
    const lines = [0.25, 0.5, 0.75].map((share) => draw("line",
      { class: "grid", x1: left, x2: right, y1: up(share), y2: up(share) }));
    const labels = [0, 0.5, 1].map((share) => draw("text", { x: left - 8, y: up(share) + 4, "text-anchor": "end" },
      percent(share)));
    return draw("g", {}, lines, labels,
      draw("line", { class: "limit", x1: left, x2: right, y1: up(1), y2: up(1) }),
      draw("text", { class: "mark", x: right, y: up(1) - 8, "text-anchor": "end" }, "the whole budget"),
      draw("text", { x: 0, y: up(1) - 16 }, "share used"));
  }

  function timeAxis(start, end, across, bottom, width) {
    const step = STEPS.find((one) => (end - start) / one <= Math.floor(width / 110)) || STEPS[STEPS.length - 1];
    const shift = new Date(start).getTimezoneOffset() * MINUTE; // ticks at round local times
    const marks = [];
    for (let time = Math.ceil((start - shift) / step) * step + shift; time <= end; time += step) {
      const place = across(time);
      marks.push(draw("line", { class: "axis", x1: place, x2: place, y1: bottom, y2: bottom + 5 }));
      // A label at the very edge would be cut off.
      if (place < across(start) - 1 || place > width - 36) continue;
      marks.push(draw("text", { x: place, y: bottom + 19, "text-anchor": "middle" }, tickText(time, step)));
    }
    return draw("g", {}, marks,
      draw("line", { class: "axis", x1: across(start), x2: across(end), y1: bottom, y2: bottom }),
      draw("text", { x: (across(start) + across(end)) / 2, y: bottom + 38, "text-anchor": "middle" },
        timeTitle(start, end)));
  }

  function tickText(time, step) {
    const date = new Date(time);
    if (step < MINUTE) return date.toLocaleTimeString(undefined, { timeStyle: "medium" });
    if (step < DAY) return date.toLocaleTimeString(undefined, { timeStyle: "short" });
    if (step < 90 * DAY) return date.toLocaleDateString(undefined, { day: "numeric", month: "short" });
    return date.toLocaleDateString(undefined, { month: "short", year: "numeric" });
  }

  function timeTitle(start, end) {
    const day = (time) => new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" });
    return day(start) === day(end) ? `time, ${day(start)}` : `time, ${day(start)} to ${day(end)}`;
  }

  function dotText(debit) {
    return `${debit.purpose}: ${price(debit.epsilon, debit.delta)}; ${percent(debit.used)} used after it`;
  }

  function spendingCurve(spending, times, [start, end], across, up) {
    let path = `M${across(start)},${up(0)}`;
    spending.forEach((debit, index) => { path += `H${across(times[index])}V${up(debit.used)}`; });
    path += `H${across(end)}`;
    // Beyond some number dots would only hide the line.
    const dots = spending.length > 30 ? [] : spending.map((debit, index) =>
      draw("circle", { class: "dot", cx: across(times[index]), cy: up(debit.used), r: 4 },
        draw("title", {}, dotText(debit))));
    return draw("g", {}, draw("path", { class: "band", d: `${path}V${up(0)}Z` }),
      draw("path", { class: "curve", d: path }), dots);
  }

  // ------------------------------------------------------------------------------------------------------- forms

  function field(label, input, hint = "", attributes = {}) {
    if (!input.id) input.id = `field-${++counter}`;
    const help = hint ? make("p", { class: "hint", id: `${input.id}-hint` }, hint) : null;
    if (help) input.setAttribute("aria-describedby", help.id);
    return make("div", { class: "field", ...attributes }, make("label", { for: input.id }, label), input, help);
  }

  function numberInput(name, value, attributes = {}) {
    return make("input", { type: "number", name, value, step: "any", required: true, inputmode: "decimal",
      ...attributes });
  }

  function textInput(name, attributes = {}) {
    return make("input", { type: "text", name, autocomplete: "off", spellcheck: "false", ...attributes });
  }

  /** A select; options are pairs of value and text, or plain texts. */
  function select(name, options, chosen, attributes = {}) {
    const made = options.map((option) => {
      const [value, text] = Array.isArray(option) ? option : [option, option];
      return make("option", { value, selected: value === chosen }, text);
    });
    return make("select", { name, ...attributes }, made);
  }

  function choice(type, name, value, label, attributes = {}) {
    const input = make("input", { type, name, value, id: `field-${++counter}`, ...attributes });
    return make("div", { class: "choice" }, input, make("label", { for: input.id }, label));
  }

  function form(test, submit, ...children) {
    return make("form", {
      "data-test": test,
      submit: (event) => {
        event.preventDefault();
        submit(event.currentTarget);
      },
    }, ...children);
  }

  const valueOf = (holder, name) => holder.elements[name].value;
  const numberOf = (holder, name) => Number(valueOf(holder, name));

  // ------------------------------------------------------------------------------------------------------ dialogs

  /** A dialog of one or more steps. It gives the focus back to what opened it, or to the page's heading. */
  function openDialog(test) {
    const opener = document.activeElement;
    const heading = make("h2", { id: `dialog-${++counter}`, tabindex: "-1" });
    const body = make("div");
    const dialog = make("dialog", { "aria-labelledby": heading.id, "data-test": test }, heading, body);
    const steps = { dialog, locked: false, close: () => dialog.close() };
    steps.show = (title, ...children) => {
      heading.textContent = title;
      body.replaceChildren(...children);
      if (!dialog.open) dialog.showModal();
      dialog.scrollTop = 0;
      (body.querySelector("form :is(input, select, textarea)") || heading).focus();
    };
    const keep = (event) => { if (steps.locked) event.preventDefault(); };
    dialog.addEventListener("cancel", keep);
    dialog.addEventListener("keydown", (event) => { if (event.key === "Escape") keep(event); });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener && opener.isConnected) opener.focus();
      else focusHeading();
    });
    document.body.append(dialog);
    return steps;
  }

  /** Run something for a dialog that must not be closed meanwhile, because its answer would be lost. */
  async function whileLocked(steps, pressed, words, fault, work) {
    const others = [...steps.dialog.querySelectorAll("button")].filter((one) => one !== pressed);
    steps.locked = true;
    others.forEach((one) => { one.disabled = true; });
    await whileBusy(pressed, words, fault, async () => {
      try {
        await work();
      } finally {
        steps.locked = false;
        others.forEach((one) => { one.disabled = false; });
      }
    });
  }

  function cancelButton(steps, text = "Cancel") {
    return button(text, "cancel", steps.close);
  }

  /** Ask before doing: the content says what will happen, the button's words do too. */
  function confirmFirst({ test, title, content, action, running, work }) {
    const steps = openDialog(test);
    const fault = faultBox();
    const confirm = button(action, "confirm", () => whileLocked(steps, confirm, running, fault, async () => {
      await work();
      steps.close();
    }), "primary");
    steps.show(title, ...content, fault, actions(cancelButton(steps), confirm));
  }

  function closeDialogs() {
    document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  }

  // --------------------------------------------------------------------------------------------- signing in and out

  async function signIn(key) {
    session.key = key;
    session.me = await get("/api/me");
    sessionStorage.setItem(KEY_STORE, key);
    const only = session.me.datasets ? `, for ${session.me.datasets.join(", ")}` : "";
    const role = session.me.role === "holder" ? "data holder" : "analyst";
    byId("who-text").textContent = `${session.me.name}, ${role}${only}`;
    byId("who").hidden = false;
    byId("sign-in").hidden = true;
    byId("sign-in-key").value = "";
    showNavigation();
    announce(`Signed in as ${byId("who-text").textContent}`);
  }

  function signOut(message = "") {
    const wasIn = session.me !== null;
    session.key = session.me = null;
    sessionStorage.removeItem(KEY_STORE);
    visit += 1;
    closeDialogs();
    byId("who").hidden = byId("nav").hidden = true;
    byId("view").replaceChildren();
    byId("sign-in").hidden = false;
    byId("sign-in-fault").textContent = message;
    document.title = "Sign in \u2013 epsilearn";
    if (wasIn) byId("sign-in-key").focus();
  }

  function submitKey(event) {
    event.preventDefault();
    const key = byId("sign-in-key").value.trim();
    const fault = byId("sign-in-fault");
    // Anything else cannot be sent in a header at all.
    if (!/^[!-~]+$/.test(key)) {
      fault.textContent = "This is not a key: keys are letters, digits and underscores.";
      return;
    }
    whileBusy(byId("sign-in-button"), "Signing in\u2026", fault, async () => {
      await signIn(key);
      await go(true);
    });
  }

  function toggleKey() {
    const input = byId("sign-in-key");
    const shown = input.type === "password";
    input.type = shown ? "text" : "password";
    byId("sign-in-show").textContent = shown ? "Hide" : "Show";
    byId("sign-in-show").setAttribute("aria-pressed", String(shown));
  }

  const isHolder = () => session.me !== null && session.me.role === "holder";

  // ----------------------------------------------------------------------------------------------------- navigation

  function placesOffered() {
    const offered = [["datasets", "#/", "Data sets"]];
    if (isHolder()) offered.push(["keys", "#/keys", "Keys"]);
    // The log speaks of all data sets, so only keys for all may read it.
    if (isHolder() && session.me.datasets === null) offered.push(["log", "#/log", "Log"]);
    return offered;
  }

  function showNavigation() {
    const links = placesOffered().map(([name, address, text]) => make("li", {},
      make("a", { href: address, "data-test": `nav-${name}` }, text)));
    byId("nav").replaceChildren(make("ul", {}, links));
    byId("nav").hidden = false;
  }

  function markNavigation(name) {
    const exact = name !== "datasets" && name !== "releases";
    const current = name === "keys" || name === "log" ? name : "datasets";
    for (const link of byId("nav").querySelectorAll("a")) {
      if (link.dataset.test === `nav-${current}`) link.setAttribute("aria-current", exact ? "page" : "true");
      else link.removeAttribute("aria-current");
    }
  }

  function placeOf(hash) {
    const [name, rest] = hash.replace(/^#\/?/, "").split("/");
    try {
      if ((name === "datasets" || name === "releases") && rest) return { name, which: decodeURIComponent(rest) };
    } catch {
      // An address that somebody has cut short: show all data sets.
    }
    return { name: name === "keys" || name === "log" ? name : "all", which: null };
  }

  /** Show the place in the address. The old one stays until the new one is there. */
  async function go(moved) {
    if (!session.me) return;
    closeDialogs();
    const mine = ++visit;
    const place = placeOf(location.hash);
    const view = byId("view");
    markNavigation(place.name);
    if (!view.childElementCount) view.replaceChildren(make("p", { class: "loading" }, "Loading\u2026"));
    view.setAttribute("aria-busy", "true");
    let content;
    try {
      content = await VIEWS[place.name](place.which, mine);
    } catch (error) {
      content = troubleView(told(error));
    }
    if (mine !== visit) return;
    view.replaceChildren(...content);
    view.removeAttribute("aria-busy");
    const heading = view.querySelector("h1");
    document.title = `${heading.textContent} \u2013 epsilearn`;
    if (moved) {
      window.scrollTo(0, 0);
      focusHeading();
    }
  }

  function focusHeading() {
    const heading = byId("view").querySelector("h1");
    if (!heading) return;
    heading.setAttribute("tabindex", "-1");
    heading.focus({ preventScroll: true });
  }

  function move(address) {
    if (location.hash === address) return go(true);
    location.hash = address; // "hashchange" does the rest
    return Promise.resolve();
  }

  function troubleView(text) {
    const fault = faultBox();
    fault.textContent = text;
    return [make("h1", {}, "This cannot be shown"), fault,
      actions(button("Try again", "try-again", () => go(true)), make("a", { href: "#/" }, "All data sets"))];
  }

  function trail(...links) {
    const items = links.map(([address, text]) => make("li", {}, make("a", { href: address }, text)));
    return make("nav", { class: "trail", "aria-label": "Where this is" }, make("ol", {}, items));
  }

  const dataSetAddress = (name) => `#/datasets/${encodeURIComponent(name)}`;
  const releaseAddress = (id) => `#/releases/${encodeURIComponent(id)}`;

  function refreshButton() {
    const fault = faultBox();
    const pressed = button("Refresh", "refresh", () => whileBusy(pressed, "Refreshing\u2026", fault, async () => {
      await go(false);
      byId("view").querySelector("[data-test=refresh]")?.focus();
    }));
    return pressed;
  }

  // ------------------------------------------------------------------------------------------------- all data sets

  async function allView() {
    const found = await get("/api/datasets");
    const register = isHolder() ? actions(button("Register a data set", "register-open",
      (event) => startRegistering(event.currentTarget), "primary")) : null;
    const fault = make("p", { class: "fault", role: "alert", id: "register-fault", "data-test": "fault" });
    const none = isHolder() ? "There is no data set yet. Register one to begin."
      : "There is no data set for this key yet.";
    return [
      make("div", { class: "heading" }, make("h1", {}, "Data sets"), register), fault,
      make("p", { class: "lead soft" },
        "Each has one budget. Whatever is released from it, to whomever, is debited there, and the budget never " +
        "grows back."),
      found.length ? make("ul", { class: "cards" }, found.map((one) => make("li", {}, dataSetCard(one))))
        : make("p", {}, none),
    ];
  }

  function dataSetCard(summary) {
    const link = make("a", { href: dataSetAddress(summary.name), "data-test": "dataset-link" }, summary.name);
    return make("article", { class: "card", "data-test": "dataset", "data-name": summary.name },
      make("h2", {}, link), make("p", { class: "soft" }, several(summary.rows, "row", "rows")),
        shownBudget(summary.name, summary.balance));
  }

  // -------------------------------------------------------------------------------------------------- one data set

  async function dataSetView(name) {
    const details = await get(dataSetPath(name));
    return [
      trail(["#/", "Data sets"]),
      make("div", { class: "heading" }, make("h1", {}, details.name),
        actions(refreshButton(), openReleaseButton(details))),
      make("p", { class: "soft" }, `${several(details.rows, "row", "rows")}, registered by ${details.who}, `,
        moment(details.created),
        details.balance.rows_per_person > 1 ? `; up to ${details.balance.rows_per_person} rows for one person` : ""),
      part("Budget", null, shownBudget(details.name, details.balance), spendingPlot(details)),
      part("Releases", null, releaseTable(details)),
      part("What was spent", null, spendingTable(details)),
      part("What is public about its columns", null, columnTable(details.columns)),
    ];
  }

  function openReleaseButton(details) {
    return isHolder() ? button("Open a release", "open-release-open", () => startOpening(details), "primary") : null;
  }

  function releaseTable(details) {
    const rows = details.releases.map((release) => {
      const link = make("a", { href: releaseAddress(release.id), "data-test": "release-link" },
        KINDS[release.kind].name);
      return make("tr", { "data-test": "release-row", "data-release": release.id },
        make("th", { scope: "row" }, link, release.note ? make("div", { class: "soft" }, release.note) : null),
        cell(release.target === null ? NOTHING : release.target, "text"), cell(state(release.status)),
        cell(number(release.epsilon), "number"), cell(number(release.delta), "number"), cell(release.who),
          cell(moment(release.created)));
    });
    const heads = [["Kind"], ["Target"], ["Status"], ["Epsilon", "number"], ["Delta", "number"], ["By"], ["Opened"]];
    return table("Releases", heads, rows, isHolder() ? "Nothing has been opened yet."
      : "Nothing has been opened yet; a data holder does that.");
  }

  function spendingTable(details) {
    const rows = [...details.spending].reverse().map((debit) => make("tr",
      { "data-test": "spending-row", "data-entry": debit.entry },
      cell(moment(debit.time)), cell(debit.purpose, "text"), cell(debit.who), cell(number(debit.epsilon), "number"),
      cell(number(debit.delta), "number"), cell(percent(debit.used), "number"), cell(state(debit.status))));
    const heads = [["When"], ["For what"], ["By"], ["Epsilon", "number"], ["Delta", "number"],
      ["Used after", "number"], ["Status"]];
    return table("What was spent", heads, rows, "Nothing yet.");
  }

  function columnTable(columns) {
    const rows = columns.map((column) => make("tr", { "data-test": "column-row", "data-column": column.name },
      rowHead(column.name), cell(columnText(column), "text"),
        cell(column.missing === null ? "not allowed" : `counts as ${column.missing}`, "brief")));
    return table("Columns", [["Column"], ["Values"], ["Missing values"]], rows,
      "Its columns are numbered and have no names.");
  }

  function columnText(column) {
    if (column.categories) return column.categories.map(String).join(", ");
    return column.bounds ? `numbers from ${number(column.bounds[0])} to ${number(column.bounds[1])}` : NOTHING;
  }

  // ---------------------------------------------------------------------------------------- registering a data set

  function startRegistering(pressed) {
    whileBusy(pressed, "Looking for files\u2026", byId("register-fault"), async () => {
      const { files } = await get("/api/files");
      const steps = openDialog("register-dialog");
      const filling = registerForm(files, (asked) => reviewRegistration(steps, filling, asked), steps);
      steps.show("Register a data set", filling);
    });
  }

  function registerForm(files, next, steps) {
    const tables = files.filter((name) => !name.endsWith(".toml"));
    const schemas = files.filter((name) => name.endsWith(".toml"));
    const fault = faultBox();
    if (!tables.length) fault.textContent = "The server's folder of tables has no file that could be registered.";
    return form("register-form", (filled) => next(registrationOf(filled)),
      make("div", { class: "fields" },
        field("Name", textInput("name", { required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
          title: "Letters, digits, dots, underscores and hyphens" }),
          "How analysts will know it. Letters, digits, dots, hyphens."),
        field("Table", select("file", tables, tables[0], { required: true }),
          "A file in the server's folder of tables."),
        schemaFields(schemas),
        field("Epsilon", numberInput("epsilon", "2", { min: "0.000001", max: "1000" }),
          "The total, for everything that is ever released from it."),
        field("Delta", numberInput("delta", "1e-5", { min: "0", max: "0.999999" }),
          "0, or well below one in the number of rows."),
        field("Rule", select("rule", Object.entries(RULES), ""), "How debits add up.", { class: "field whole" })),
      fault, actions(cancelButton(steps), button("Review", "register-review", null, "primary")));
  }

  /** The schema: a file of the server, or text; only the one that was chosen is shown and required. */
  function schemaFields(schemas) {
    const file = field("Schema file", select("schema_file", schemas, schemas[0], { required: true }));
    const placeholder = "version = 1\n\n[columns.age]\nbounds = [0, 120]";
    const text = field("Schema text",
      make("textarea", { name: "schema_toml", spellcheck: "false", required: true, placeholder }));
    const choose = (source) => {
      for (const [box, shown] of [[file, source === "file"], [text, source === "text"]]) {
        box.hidden = !shown;
        box.querySelector("select, textarea").disabled = !shown;
      }
    };
    const change = (event) => choose(event.target.value);
    choose(schemas.length ? "file" : "text");
    return make("fieldset", { class: "whole" }, make("legend", {}, "What is public about it"),
      choice("radio", "source", "file", "a TOML file on the server",
        { checked: schemas.length > 0, disabled: !schemas.length, change }),
      choice("radio", "source", "text", "TOML pasted here", { checked: !schemas.length, change }), file, text);
  }

  function registrationOf(filled) {
    const source = valueOf(filled, "source") === "file" ? "schema_file" : "schema_toml";
    const asked = {
      name: valueOf(filled, "name"), file: valueOf(filled, "file"), [source]: valueOf(filled, source),
      epsilon: numberOf(filled, "epsilon"), delta: numberOf(filled, "delta"),
    };
    if (valueOf(filled, "rule")) asked.rule = valueOf(filled, "rule");
    return asked;
  }

  function reviewRegistration(steps, filling, asked) {
    const fault = faultBox();
    const confirm = button("Register, and fix the budget", "confirm",
      () => whileLocked(steps, confirm, "Reading every row\u2026", fault, async () => {
      await post("/api/datasets", asked);
      steps.close();
      await move(dataSetAddress(asked.name));
    }), "primary");
    const rule = asked.rule || (asked.delta ? "zcdp" : "pure");
    steps.show(`Register ${asked.name}?`,
      facts([["Table", asked.file], ["Schema", asked.schema_file || "pasted text"],
        ["Total budget", price(asked.epsilon, asked.delta)], ["Rule", rule]]),
      make("p", { class: "note" },
        "The budget is fixed for good: it cannot be raised, reset or given another rule later, by anybody. Every row " +
        "of the file is read once and checked against the schema."),
      fault, actions(button("Back", "back", () => steps.show("Register a data set", filling)), confirm));
  }

  // ---------------------------------------------------------------------------------------------- opening a release

  function startOpening(details) {
    const steps = openDialog("open-release-dialog");
    const filling = openingForm(details, steps);
    steps.show(`Open a release of ${details.name}`, filling);
  }

  function openingForm(details, steps) {
    const fault = faultBox();
    const about = make("p", { class: "hint" });
    const rest = make("div", { class: "fields" });
    const kind = select("kind", Object.entries(KINDS).map(([name, words]) => [name, words.name]), "process");
    const show = button("Show the bill", "show-bill", null, "primary");
    const change = () => {
      about.textContent = KINDS[kind.value].about;
      rest.replaceChildren(...openingFields(kind.value, details));
    };
    kind.addEventListener("change", change);
    change();
    const filling = form("open-release-form", (filled) => whileBusy(show, "Working out the bill\u2026", fault,
      async () => {
      const asked = openingOf(filled);
      showBill(steps, filling, details, asked, await post(`${dataSetPath(details.name)}/bill`, asked));
    }), make("div", { class: "fields" }, field("Kind", kind, "", { class: "field whole" })), about, rest, fault,
      actions(cancelButton(steps), show));
    return filling;
  }

  function openingFields(kind, details) {
    const epsilon = field("Epsilon", numberInput("epsilon", suggestion(details.balance),
      { min: "0.000001", max: "1000" }),
      kind === "statistics" ? "For all statistics of this release together." : "What is debited, once.");
    const note = field("Note", textInput("note", { maxlength: 200 }),
      "Optional. Written into the ledger, for all to see.", { class: "field whole" });
    if (kind === "statistics") return [epsilon, note];
    const delta = field("Delta", numberInput("delta", kind === "model" ? "0" : "1e-6",
      { min: kind === "model" ? "0" : "1e-30", max: "0.999999" }));
    const alpha = field("Alpha", numberInput("alpha", "",
      { required: false, min: "1e-12", max: "1000000", placeholder: "automatic" }),
      "Regularisation. Empty: chosen from public numbers.");
    return [...(kind === "model" ? modelFields(details) : learningFields(kind, details)), epsilon, delta, alpha, note];
  }

  /** Round, not above 1, and not more than a half of what is left: a start to think from. */
  function suggestion(balance) {
    const half = balance.remaining_epsilon / 2;
    return half >= 1 ? "1" : String(Number(Math.max(half, 0.01).toPrecision(1)));
  }

  function targets(columns, fits) {
    return columns.filter(fits).map((column) => column.name);
  }

  function learningFields(kind, details) {
    const names = targets(details.columns, (column) => !column.categories || column.categories.length === 2);
    const target = field("Target", select("target", names, names[names.length - 1], { required: true }),
      "What is predicted: a number or one of two classes.");
    const points = field("Different points", numberInput("max_points", "1000", { min: "1", max: "20000", step: "1" }),
      "That may ever be asked.");
    const kernel = select("kernel", Object.entries(KERNELS), "rbf");
    if (kind === "interactive") {
      return [target, field("Kernel", kernel),
        field("Questions", numberInput("questions", "1000", { min: "1", max: "1000000", step: "1" }),
          "Different points that may ever be asked."),
        field("Chance of failure", numberInput("failure", "0.05", { min: "0.000001", max: "0.999999" }),
          "That some answer is further off than promised.")];
    }
    kernel.addEventListener("change", () => { points.hidden = kernel.value !== "rbf"; });
    return [target, field("Kernel", kernel), points];
  }

  function modelFields(details) {
    const target = make("select", { name: "target", required: true });
    const model = select("model", Object.entries(MODELS), "logistic");
    const kernel = field("Kernel", select("kernel", Object.entries(KERNELS).slice(0, 2), "rbf"));
    const fits = {
      linear: (column) => !column.categories, lasso: (column) => !column.categories, landmark: () => true,
      logistic: (column) => column.categories, svm: twoClasses, "sparse-logistic": twoClasses,
    };
    const change = () => {
      const names = targets(details.columns, fits[model.value]);
      const before = names.includes(target.value) ? target.value : names[names.length - 1];
      target.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === before }, name)));
      kernel.hidden = model.value !== "landmark";
      // The server refuses a kernel for models that have none.
      if (kernel.hidden) kernel.querySelector("select").value = "rbf";
    };
    model.addEventListener("change", change);
    change();
    return [field("Model", model), field("Target", target, "Those that this model can predict."), kernel];
  }

  const twoClasses = (column) => column.categories !== null && column.categories.length === 2;

  function openingOf(filled) {
    const asked = {};
    for (const input of filled.elements) {
      if (!input.name) continue;
      if (input.name === "alpha") asked.alpha = input.value === "" ? "auto" : Number(input.value);
      else asked[input.name] = input.type === "number" ? Number(input.value) : input.value;
    }
    return asked;
  }

  function showBill(steps, filling, details, asked, bill) {
    const fault = faultBox();
    const words = bill.debited_now ? `Debit epsilon ${number(bill.epsilon)} and open`
      : `Allow epsilon ${number(bill.epsilon)} and open`;
    const confirm = button(words, "open-release",
      () => whileLocked(steps, confirm, "Opening\u2026", fault, async () => {
      const made = await post(`${dataSetPath(details.name)}/releases`, asked);
      steps.close();
      // The release's own page follows the opening, so that a reload does not lose sight of it.
      await move(releaseAddress(made.id));
    }), "primary");
    const what = KINDS[asked.kind].title(asked.target);
    const when = bill.debited_now
      ? "It is debited at once and never comes back, even if the release is closed."
      : "Nothing is debited now. The second bar shows the budget if all of it is asked for.";
    steps.show("The bill",
      make("div", { "data-test": "bill" },
        make("p", {}, make("strong", {}, `${what}: ${price(bill.epsilon, bill.delta)}.`), ` ${when}`),
        make("div", { class: "compare" },
          make("h3", {}, "Before"), shownBudget(details.name, bill.before), make("h3", {}, "After"),
            shownBudget(details.name, bill.after, bill.before)),
        meaningPart(bill.meaning)),
      fault, actions(button("Back", "back", () => steps.show(`Open a release of ${details.name}`, filling)), confirm));
  }

  function meaningPart(sentences) {
    const [first, ...rest] = sentences;
    const items = rest.map((one) => make("li", {}, one));
    return make("div", { class: "meaning", "data-test": "meaning" }, make("p", {}, first), make("ul", {}, items));
  }

  // ------------------------------------------------------------------------------------------------------ a release

  async function releaseView(id, mine) {
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
      if (mine !== visit) return;
      const clock = byId("view").querySelector("[data-test=opening-clock]");
      try {
        const now = await get(releasePath(release.id));
        if (mine !== visit) return;
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

  function promiseBox(release) {
    const rows = release.guarantee ? release.guarantee.rows_per_person : 1;
    const whose = rows > 1 ? `up to ${rows} rows of one person` : "one person's row";
    const kind = release.guarantee ? "promise" : "promise pending";
    return make("div", { class: kind, "data-test": "promise" },
      make("strong", {}, `Epsilon${price(release.epsilon, release.delta).slice(7)} for ${whose}`),
      make("p", {}, promiseText(release)), noiseText(release));
  }

  function promiseText(release) {
    if (release.guarantee) return KINDS[release.kind].promise;
    const failed = " Nothing was released. The list of what was spent shows whether it was debited.";
    return `This is what was asked for.${release.status === "failed" ? failed : ""}`;
  }

  function noiseText(release) {
    const target = release.target;
    if (release.tolerance !== null) {
      const sure = percent(1 - release.settings.failure);
      return make("p", {},
        `With a chance of ${sure}, no answer's score is further than ${number(release.tolerance)} from what the ` +
        "private model itself would say.");
    }
    if (release.noise_deviation === null) return null;
    const size = number(release.noise_deviation);
    if (release.kind === "model") return make("p", {},
      `The noise behind it has a standard deviation of ${size}; the report says what that does to the model.`);
    return make("p", {},
      `The score of each answer about ${target} carries Gaussian noise with a standard deviation of at most ${size}: ` +
      `in 95${SPACE}% of cases it moves the score by less than ${number(1.96 * release.noise_deviation)}.`);
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

  function documentsPart(release) {
    if (!release.documents.length) return [];
    const fault = faultBox();
    const order = Object.keys(DOCUMENTS).filter((name) => release.documents.includes(name));
    const buttons = order.map((name) => {
      const pressed = button(DOCUMENTS[name], "download",
        () => whileBusy(pressed, "Downloading\u2026", fault, async () => {
        await download(release, name);
        announce(`Downloaded ${name}`);
      }));
      filled(pressed, { "data-document": name, title: name }, []);
      return pressed;
    });
    return [part("Download", null, actions(...buttons), fault)];
  }

  function explanationPart(release) {
    if (!release.meaning.length) return [];
    const { assumptions, theorem } = release.guarantee;
    const rests = release.kind === "statistics" ? null
      : make("details", {}, make("summary", {}, "What the promise rests on"),
      make("p", {}, `Theorem: ${theorem}.`), make("ul", {}, assumptions.map((one) => make("li", {}, one))));
    return [part("What the promise means", null, meaningPart(release.meaning), rests)];
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

  // ----------------------------------------------------------------------------------------------------- predictions

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

  function predictionPart(context) {
    const { release } = context;
    const fault = faultBox();
    const result = make("div", { "aria-live": "polite" });
    const pressed = button("Predict", "predict-button", null, "primary");
    const inputs = release.columns.map(pointField);
    const filling = form("predict-form", () => whileBusy(pressed, "Asking\u2026", fault, async () => {
      const row = Object.fromEntries(inputs.map((one) => [one.name, one.read()]));
      const { answers } = await post(`${releasePath(release.id)}/predict`, { rows: [row] });
      result.replaceChildren(predictionBox(context, answers[0]));
      await context.refresh();
    }), make("div", { class: "fields" }, inputs.map((one) => one.node)), fault, actions(pressed));
    filling.className = "panel";
    return part(`Try a prediction of ${release.target}`, null,
      make("p", { class: "soft" }, "Nothing more is debited, however often you ask."), filling, result);
  }

  /** An input for one column of a point, and how to read it. */
  function pointField(column) {
    return column.categories ? categoryField(column) : numberField(column);
  }

  function categoryField(column) {
    const options = column.categories.map((value, index) => [String(index), String(value)]);
    if (column.missing !== null) options.push(["missing", `missing (counts as ${column.missing})`]);
    const input = select(null, options, "0", { "data-column": column.name });
    // Options carry positions, so that true, 1 and "1" stay what they are.
    const read = () => (input.value === "missing" ? null : column.categories[Number(input.value)]);
    return { name: column.name, read, node: field(column.name, input) };
  }

  function numberField(column) {
    const [low, high] = column.bounds || [null, null];
    const middle = column.bounds ? Number(((low + high) / 2).toPrecision(4)) : 0;
    const input = numberInput(null, String(middle), { min: low, max: high, "data-column": column.name });
    const node = field(column.name, input, column.bounds ? `${number(low)} to ${number(high)}` : "");
    if (column.missing === null) return { name: column.name, read: () => Number(input.value), node };
    const gone = choice("checkbox", null, "missing", `missing (counts as ${column.missing})`, {
      "data-missing": column.name, change: (event) => { input.disabled = event.target.checked; },
    });
    node.append(gone);
    return { name: column.name, read: () => (input.disabled ? null : Number(input.value)), node };
  }

  function predictionBox({ release, details }, answer) {
    const value = typeof answer.prediction === "number" ? number(answer.prediction) : String(answer.prediction);
    const target = details.columns.find((column) => column.name === release.target);
    const above = target && twoClasses(target)
      ? `; above 0 it says ${target.categories[1]}, otherwise ${target.categories[0]}` : "";
    const source = answer.private ? "The private model answered."
      : "The public hypothesis answered; the private model was not needed.";
    return make("div", { class: "answer", "data-test": "prediction" },
      make("p", { class: "value" }, make("small", {}, `${release.target}: `),
        make("span", { "data-test": "prediction-value" }, value)),
      answer.score === null ? null : make("p", {}, "Score ",
        make("span", { "data-test": "prediction-score" }, number(answer.score)), `${above}.`),
      answer.private === null ? null : make("p", { "data-test": "prediction-source" }, source));
  }

  // ------------------------------------------------------------------------------------------------------ statistics

  const COLUMNS_FOR = { count: (column) => column.categories !== null, histogram: () => true };
  const ofNumbers = (column) => column.categories === null;

  function statisticPart(context) {
    const { release } = context;
    const fault = faultBox();
    const result = make("div", { "aria-live": "polite" });
    const kinds = Object.entries(STATISTICS).filter(([name]) => release.columns.some(COLUMNS_FOR[name] || ofNumbers));
    const statistic = select("statistic", kinds, kinds[0] && kinds[0][0]);
    const column = make("select", { name: "column", required: true });
    const extra = make("div", { class: "field" });
    const epsilon = numberInput("epsilon", String(Math.min(0.1, release.left.epsilon || 0.1)),
      { min: "0.000001", max: "1000" });
    const columnOf = () => release.columns.find((one) => one.name === column.value);
    const changeColumn = () => extra.replaceChildren(...statisticExtra(statistic.value, columnOf()));
    const changeStatistic = () => {
      const names = targets(release.columns, COLUMNS_FOR[statistic.value] || ofNumbers);
      const before = names.includes(column.value) ? column.value : names[0];
      column.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === before }, name)));
      changeColumn();
    };
    statistic.addEventListener("change", changeStatistic);
    column.addEventListener("change", changeColumn);
    changeStatistic();
    const filling = form("statistic-form", (filled) => {
      fault.textContent = "";
      const asked = statisticOf(filled, columnOf());
      if (typeof asked === "string") fault.textContent = asked;
      else confirmStatistic(context, asked, result);
    }, make("div", { class: "fields" }, field("Statistic", statistic), field("Column", column), extra,
      field("Epsilon", epsilon, "More of it means less noise.")), fault,
      actions(button("Ask", "ask-button", null, "primary")));
    filling.className = "panel";
    return part("Ask for a statistic", null, make("p", { class: "soft" },
      "You see what it costs before anything is debited."), filling, result);
  }

  function statisticExtra(statistic, column) {
    if (statistic === "count") {
      const options = column.categories.map((value, index) => [String(index), String(value)]);
      return [field("Equal to", select("equals", options, "0"))];
    }
    if (statistic === "quantile") return [field("Quantile", numberInput("q", "0.5", { min: "0.001", max: "0.999" }),
      "Between 0 and 1; 0.5 is the median.")];
    if (statistic === "histogram" && !column.categories) {
      return [field("Edges", textInput("edges", { value: edgesOf(column.bounds).join(" "), required: true }),
        "Numbers that grow, with spaces between.")];
    }
    return [];
  }

  function edgesOf([low, high]) {
    return [0, 1, 2, 3, 4, 5].map((step) => Number((low + (step / 5) * (high - low)).toPrecision(4)));
  }

  /** The request, or a sentence that says why it cannot be one. */
  function statisticOf(filled, column) {
    const asked = { statistic: valueOf(filled, "statistic"), column: valueOf(filled, "column"),
      epsilon: numberOf(filled, "epsilon") };
    if (filled.elements.equals) asked.equals = column.categories[numberOf(filled, "equals")];
    if (filled.elements.q) asked.q = numberOf(filled, "q");
    if (filled.elements.edges) {
      asked.edges = valueOf(filled, "edges").split(/[\s,;]+/).filter(Boolean).map(Number);
      const grow = asked.edges.every((edge, index) => Number.isFinite(edge)
        && (index === 0 || edge > asked.edges[index - 1]));
      if (!grow || asked.edges.length < 2) {
        return "The edges must be two numbers or more, each larger than the one before, with spaces between.";
      }
    }
    return asked;
  }

  function statisticTitle(asked) {
    if (asked.statistic === "count") return `Count of ${asked.column} = ${asked.equals}`;
    if (asked.statistic === "quantile") return `Quantile ${number(asked.q)} of ${asked.column}`;
    return `${STATISTICS[asked.statistic]} of ${asked.column}`;
  }

  function confirmStatistic(context, asked, result) {
    const { release } = context;
    const after = Number((release.left.epsilon - asked.epsilon).toPrecision(12));
    const rest = after >= 0 ? `epsilon ${number(after)} of ${number(release.epsilon)}`
      : `not enough: only epsilon ${number(release.left.epsilon)} is left, so a new question will be refused`;
    confirmFirst({
      test: "statistic-dialog", title: `${statisticTitle(asked)}?`,
        action: `Debit epsilon ${number(asked.epsilon)} and ask`, running: "Asking\u2026",
      content: [
        facts([["To be debited", `epsilon ${number(asked.epsilon)}`, "debit"],
          ["Left of this release afterwards", rest, "left-afterwards"]]),
        make("p", { class: "note" },
          "A question that was asked before, by anybody, with the same epsilon, has the same answer and costs " +
          "nothing. What is debited never comes back."),
      ],
      work: async () => {
        const answer = await post(`${releasePath(release.id)}/statistic`, asked);
        result.replaceChildren(statisticBox(asked, answer));
        await context.refresh();
      },
    });
  }

  function statisticBox(asked, answer) {
    const many = Array.isArray(answer.value);
    const cost = answer.asked_before ? "It was asked before: nothing was debited."
      : `Epsilon ${number(asked.epsilon)} was debited.`;
    return make("div", { class: "answer", "data-test": "statistic" },
      make("p", { class: "value" }, many ? statisticTitle(asked) : oneValue(asked, answer)),
      many ? binTable(answer) : null,
      make("p", { "data-test": "statistic-width" }, widthText(answer.half_width_95, many)),
      make("p", { "data-test": "statistic-cost" }, cost));
  }

  function oneValue(asked, answer) {
    const width = answer.half_width_95;
    return [make("small", {}, `${statisticTitle(asked)}: `),
      make("span", { "data-test": "statistic-value" }, number(answer.value)),
      width === null ? null : make("small", {}, ` \u00b1 ${number(width)}`)];
  }

  function widthText(width, many) {
    if (width === null) return "The noise of this statistic has no width that could be told beforehand.";
    const what = many ? "each number" : "it";
    return `With a chance of 95${SPACE}%, the noise has moved ${what} by no more than ${number(width)}.`;
  }

  function binTable(answer) {
    const most = Math.max(1, ...answer.value);
    const rows = answer.value.map((value, index) => {
      const bar = make("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${(Math.max(0, value) / most) * 100}%`;
      return make("tr", {}, rowHead(answer.bins ? answer.bins[index] : String(index + 1)),
        cell(count(value), "number"), cell(bar));
    });
    const box = table("Bins", [["Bin"], ["Count", "number"], [make("span", { class: "unseen" }, "Bar")]], rows, "");
    box.classList.add("bins");
    box.setAttribute("data-test", "statistic-value");
    return box;
  }

  // ------------------------------------------------------------------------------------------------------------ keys

  async function keysView() {
    const { keys } = await get("/api/keys");
    const heads = [["Name"], ["Role"], ["For"], ["Made"], ["Expires"], ["State"],
      [make("span", { class: "unseen" }, "Actions")]];
    return [
      make("div", { class: "heading" }, make("h1", {}, "Keys"),
        actions(button("Make a key", "create-key-open", (event) => startKey(event.currentTarget), "primary"))),
      make("p", { class: "fault", role: "alert", id: "key-fault", "data-test": "fault" }),
      make("p", { class: "soft lead" },
        "A key says who calls and what they may do. Only a digest of it is stored, so a lost key is replaced, not " +
        "found."),
      table("Keys", heads, keys.map(keyRow), "There are no keys."),
    ];
  }

  function keyRow(key) {
    const over = key.expires && Date.parse(key.expires) <= Date.now();
    const standing = key.revoked ? "revoked" : over ? "expired" : "valid";
    const mark = make("span", { class: standing === "valid" ? "state good" : "state" }, standing);
    const own = key.id === session.me.key ? " (this one)" : "";
    const end = key.revoked ? null : button("Revoke", "revoke", () => confirmRevoking(key), "quiet");
    if (end) end.setAttribute("aria-label", `Revoke the key of ${key.name}`);
    return make("tr", { "data-test": "key-row", "data-key": key.id },
      rowHead(`${key.name}${own}`), cell(key.role),
        cell(key.datasets ? key.datasets.join(", ") : "every data set", "text"),
        cell([moment(key.created), make("div", { class: "soft" }, `by ${key.who}`)]),
      cell(key.expires ? moment(key.expires) : "never"), cell(mark), cell(end, "act"));
  }

  function confirmRevoking(key) {
    const own = key.id === session.me.key ? " It is the key you are signed in with: you will be signed out." : "";
    confirmFirst({
      test: "revoke-dialog", title: `Revoke the key of ${key.name}?`, action: "Revoke it for good",
        running: "Revoking\u2026",
      content: [make("p", {}, `It stops working at once and for good.${own}`)],
      work: async () => {
        await ask("DELETE", `/api/keys/${encodeURIComponent(key.id)}`);
        if (own) signOut("You have revoked your own key.");
        else await go(false);
      },
    });
  }

  function startKey(pressed) {
    whileBusy(pressed, "Loading\u2026", byId("key-fault"), async () => {
      const names = session.me.datasets || (await get("/api/datasets")).map((one) => one.name);
      const steps = openDialog("create-key-dialog");
      const filling = keyForm(names, steps, (asked) => reviewKey(steps, filling, asked));
      steps.show("Make a key", filling);
    });
  }

  function keyForm(names, steps, next) {
    const fault = faultBox();
    return form("create-key-form", (filled) => {
      const asked = keyOf(filled);
      const empty = asked.datasets !== null && !asked.datasets.length;
      fault.textContent = empty ? "Choose at least one data set." : "";
      if (!empty) next(asked);
    }, make("div", { class: "fields" },
      field("Name", textInput("name", { required: true, maxlength: 64, pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
        title: "Letters, digits, dots, underscores and hyphens" }), "Whose it is. Debits are written down under it."),
      field("Role", select("role", [["analyst", "analyst: sees and asks"],
        ["holder", "data holder: may spend the budget"]], "analyst")),
      scopeFields(names),
      field("Days", numberInput("days", "", { required: false, min: "0.001", max: "36500", placeholder: "no end" }),
        "After which it expires. Empty: never.")),
    fault, actions(cancelButton(steps), button("Review", "create-key", null, "primary")));
  }

  function scopeFields(names) {
    const boxes = make("div", { class: "choices" }, names.map((name) => choice("checkbox", "dataset", name, name)));
    const every = session.me.datasets === null;
    const change = (event) => { boxes.hidden = event.target.value === "every"; };
    boxes.hidden = every;
    return make("fieldset", {}, make("legend", {}, "What it is for"),
      choice("radio", "scope", "every", "every data set", { checked: every, disabled: !every, change }),
      choice("radio", "scope", "some", names.length ? "some data sets" : "some data sets (there are none yet)",
        { checked: !every, disabled: !names.length, change }), boxes);
  }

  function keyOf(filled) {
    const some = valueOf(filled, "scope") === "some";
    const chosen = [...filled.querySelectorAll("[name=dataset]:checked")].map((box) => box.value);
    const days = valueOf(filled, "days");
    return { name: valueOf(filled, "name"), role: valueOf(filled, "role"), datasets: some ? chosen : null,
      days: days === "" ? null : Number(days) };
  }

  function reviewKey(steps, filling, asked) {
    const fault = faultBox();
    const confirm = button("Make the key", "confirm",
      () => whileLocked(steps, confirm, "Making the key\u2026", fault, async () => {
      const made = await post("/api/keys", asked);
      showKey(steps, asked, made);
    }), "primary");
    const may = asked.role === "holder"
      ? "may register data sets, open releases, spend their budgets, and make and revoke keys"
      : "may see budgets and releases, ask, and download";
    steps.show(`Make a key for ${asked.name}?`,
      facts([["Role", asked.role === "holder" ? "data holder" : "analyst"],
        ["For", asked.datasets ? asked.datasets.join(", ") : "every data set"],
        ["Expires", asked.days === null ? "never" : `in ${several(asked.days, "day", "days")}`]]),
      make("p", { class: "note" }, `Whoever has it ${may}.`),
      fault, actions(button("Back", "back", () => steps.show("Make a key", filling)), confirm));
  }

  /** The one time a key is seen. The dialog is not closed by Escape, so that it is not lost by accident. */
  function showKey(steps, asked, made) {
    const secret = textInput("key", { value: made.key, readonly: true, id: "new-key", "data-test": "new-key" });
    const said = make("p", { class: "hint", role: "status" });
    const copy = button("Copy", "copy-key", async () => {
      const worked = await copied(secret);
      said.textContent = worked ? "Copied." : "Copying is not allowed here: the key is selected, copy it by hand.";
    });
    steps.show(`The key of ${asked.name}`,
      make("div", { class: "field" }, make("label", { for: "new-key" }, "Key"),
        make("div", { class: "joined" }, secret, copy), said),
      make("p", { class: "note" },
        "It is not shown again: only its digest is stored. Pass it on safely, not by e-mail."),
      actions(button("I have kept it", "key-kept", () => {
        steps.locked = false;
        steps.close();
        go(false);
      }, "primary")));
    // After whoever made the key has unlocked the dialog.
    setTimeout(() => { steps.locked = true; }, 0);
    secret.select();
  }

  async function copied(input) {
    try {
      await navigator.clipboard.writeText(input.value);
      return true;
    } catch {
      input.focus();
      input.select();
      return false;
    }
  }

  // ------------------------------------------------------------------------------------------------------------- log

  async function logView() {
    const page = 100;
    const { calls } = await get(`/api/log?count=${page}`);
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
    ];
  }

  function logRow(call) {
    const good = call.status < 400;
    return make("tr", { "data-test": "log-row", "data-number": call.number },
      cell(moment(call.time)), cell(call.who || "nobody known"),
        cell(make("code", {}, `${call.method} ${call.path}`), "brief"),
      cell(make("span", { class: good ? "state good" : "state bad" }, String(call.status))),
        cell(call.address, "brief"));
  }

  // ----------------------------------------------------------------------------------------------------------- start

  const VIEWS = { all: allView, datasets: dataSetView, releases: releaseView, keys: keysView, log: logView };

  async function start() {
    byId("sign-in-form").addEventListener("submit", submitKey);
    byId("sign-in-show").addEventListener("click", toggleKey);
    byId("sign-out").addEventListener("click", () => {
      // Whoever signs in next begins at the beginning.
      history.replaceState(null, "", location.pathname);
      signOut();
    });
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address names the place, so it must not become "#main"
      byId("main").focus();
    });
    window.addEventListener("hashchange", () => go(true));
    const kept = sessionStorage.getItem(KEY_STORE);
    if (!kept) return signOut();
    try {
      await signIn(kept);
    } catch (error) {
      return signOut(told(error));
    }
    return go(false);
  }

  start();
})();
