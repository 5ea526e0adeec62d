/* Dialogs: steps in one window, and asking before doing. */

import { whileBusy } from "./busy.js";
import { actions, button, faultBox, make, nextNumber } from "./elements.js";
import { focusHeading } from "./frame.js";

/** A dialog of one or more steps. It gives the focus back to what opened it, or to the page's heading. */
export function openDialog(test) {
  const opener = document.activeElement;
  const heading = make("h2", { id: `dialog-${nextNumber()}`, tabindex: "-1" });
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
export async function whileLocked(steps, pressed, words, fault, work) {
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

export function cancelButton(steps, text = "Cancel") {
  return button(text, "cancel", steps.close);
}

/** Ask before doing: the content says what will happen, the button's words do too. */
export function confirmFirst({ test, title, content, action, running, work }) {
  const steps = openDialog(test);
  const fault = faultBox();
  const confirm = button(action, "confirm", () => whileLocked(steps, confirm, running, fault, async () => {
    await work();
    steps.close();
  }), "primary");
  steps.show(title, ...content, fault, actions(cancelButton(steps), confirm));
}

export function closeDialogs() {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
}
