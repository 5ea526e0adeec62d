/* Downloading the documents of a release. */

import { whileBusy } from "./busy.js";
import { ask, releasePath } from "./calls.js";
import { actions, button, faultBox, filled, make, part } from "./elements.js";
import { announce } from "./frame.js";
import { DOCUMENTS } from "./words.js";

export function documentsPart(release) {
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
