/* The page of the service begins here: which view belongs to which place. No framework, nothing from elsewhere.

   Each place has its file (data-sets, data-set, release, keys, log), and so has each dialog of the holder (register,
   open-release, make-key). They are built from elements, tables, forms and dialogs, and ask the server by calls. Files
   import only from those below them; what would have to go up (views, signing out) is handed down here.

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
     log-row (data-number), log-older, count-row
     register-dialog, open-release-dialog, statistic-dialog, close-release-dialog, create-key-dialog, revoke-dialog
     failed                    why opening failed          show-all, try-again, opening-clock
     confirm, back, cancel     the buttons of a dialog     fault           what went wrong, beside its cause
   Inputs have the name of the request's field: [name=epsilon], [name=target], in predictions
   [data-column=...] and [data-missing=...]. */

import { onKeyRefused } from "./calls.js";
import { dataSetView } from "./data-set.js";
import { allView } from "./data-sets.js";
import { byId } from "./frame.js";
import { keysView } from "./keys.js";
import { logView } from "./log.js";
import { go, useViews } from "./places.js";
import { releaseView } from "./release.js";
import { listenForKeys, resume, signOut } from "./sign-in.js";

useViews({ all: allView, datasets: dataSetView, releases: releaseView, keys: keysView, log: logView });
onKeyRefused(signOut);
listenForKeys();
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the place, so it must not become "#main"
  byId("main").focus();
});
window.addEventListener("hashchange", () => go(true));
resume();
