/* The holder's dialog that makes a key: a form, a review, and the one time the key is seen. */

import { whileBusy } from "./busy.js";
import { get, post } from "./calls.js";
import { cancelButton, openDialog, whileLocked } from "./dialogs.js";
import { actions, button, facts, faultBox, make } from "./elements.js";
import { choice, field, form, numberInput, select, textInput, valueOf } from "./forms.js";
import { byId } from "./frame.js";
import { go } from "./places.js";
import { session } from "./session.js";
import { several } from "./words.js";

export function startKey(pressed) {
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
