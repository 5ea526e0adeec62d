/* What the page says for kinds, states and numbers. Text only: nothing here knows of elements. */

export const NOTHING = "\u2013"; // what stands where there is no value
export const SPACE = "\u00a0";

export const KINDS = {
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
export const STATES = {
  open: ["open", "good"], opening: ["being opened", ""], failed: ["failed", "bad"], closed: ["closed", ""],
  "delivered": ["delivered", "good"], "spent, not delivered": ["spent, not delivered", "bad"],
};
export const STATISTICS = {
  mean: "Mean", sum: "Sum", variance: "Variance", median: "Median", quantile: "Quantile", count: "Count",
    histogram: "Histogram",
};
export const DOCUMENTS = {
  "report.html": "Report for people", "model.json": "Model", "guarantee.json": "Guarantee",
};
export const MODELS = {
  logistic: "logistic regression", svm: "support vector machine", linear: "linear regression", lasso: "lasso",
  "sparse-logistic": "sparse logistic regression", landmark: "landmark (kernel) model",
};
export const KERNELS = { rbf: "Gaussian (RBF)", polynomial: "polynomial", linear: "linear" };
export const RULES = {
  "": "automatic: pure if delta is 0, otherwise zcdp", pure: "pure: epsilons are added up",
  zcdp: "zcdp: suits many small debits", renyi: "renyi: suits debits of many kinds",
};

/** Up to four significant digits; very small and very large ones with an exponent. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) {
    return Number(value.toPrecision(4)).toExponential().replace("e+", "e");
  }
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: size < 1e5 ? 1 : 0 });
  return String(Number(value.toPrecision(4)));
}

export function count(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 0 });
}

export function several(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A share as a percentage that says 0 or 100 only where it is exactly that. */
export function percent(share) {
  const value = share * 100;
  if (value <= 0) return `0${SPACE}%`;
  if (value >= 100) return `100${SPACE}%`;
  if (value > 99) return `${Math.floor(value * 10) / 10}${SPACE}%`;
  if (value >= 10) return `${Math.round(value)}${SPACE}%`;
  return `${Number(value.toPrecision(2))}${SPACE}%`;
}

export function price(epsilon, delta) {
  return `epsilon${SPACE}${number(epsilon)}${delta ? `, delta${SPACE}${number(delta)}` : ""}`;
}

/** Sentences of the server begin small; names of fields and columns that they begin with stay as they are. */
export function sentence(text) {
  const common = /^(an?|at|give|it|its|nothing|only|questions|somebody|the|there|this|unexpected)\b/;
  return common.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
}
