/* Buttons while their work runs. */

import { told } from "./calls.js";

/** While work runs its button is disabled and says so; what goes wrong is told in the fault box. */
export async function whileBusy(pressed, words, fault, work) {
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
