// What can stand in a column of the table of runs: what a run is, its figures, its settings.

const FIELDS = ["name", "dataset", "method", "model", "status", "questions", "written", "tags", "sweeps", "kind"];
export const SHOWN = ["name", "dataset", "method", "model", "EM", "F1", "judge", "support recall", "tokens / question", "USD / question", "questions", "written", "tags"];
const WIDE = { name: 8, dataset: 6, method: 6.5, model: 8.5, written: 9.6, tags: 8, sweeps: 9, status: 6, questions: 6, kind: 5 };

export const short = (id) => id.toLowerCase().replace(" / question", "").replaceAll(" ", "_");

/** By id: {id, kind, width, value(row), text(row)}; a value is a number, a text or null. */
export function columnsOf(rows) {
  const figures = [...new Set(rows.flatMap((row) => Object.keys(row.figures ?? {})))];
  const settings = [...new Set(rows.flatMap((row) => Object.keys(row.settings ?? {})))].filter((key) => !FIELDS.includes(key));
  const columns = new Map();
  for (const id of FIELDS) columns.set(id, { id, kind: "field", width: WIDE[id], value: fieldOf(id), text: FIELD_TEXTS[id] ?? ((row) => textOf(fieldOf(id)(row))) });
  for (const id of figures) columns.set(id, { id, kind: "figure", width: 9.2, value: (row) => row.figures?.[id]?.[0] ?? null, text: (row) => figureText(row.figures?.[id]) });
  for (const id of settings) columns.set(id, { id, kind: "setting", width: 8, value: (row) => settingOf(row.settings?.[id]), text: (row) => row.settings?.[id] ?? "" });
  return columns;
}

/** The settings that are not the same in all of these rows. */
export function differing(rows) {
  const values = new Map();
  for (const row of rows) {
    for (const [key, value] of Object.entries(row.settings ?? {})) {
      if (!values.has(key)) values.set(key, new Set());
      values.get(key).add(value);
    }
  }
  return [...values].filter(([, seen]) => seen.size > 1).map(([key]) => key);
}

function fieldOf(id) {
  if (id === "tags" || id === "sweeps") return (row) => (row[id] ?? []).join(", ") || null;
  return (row) => row[id] ?? null;
}

const textOf = (value) => (value === null ? "" : typeof value === "number" ? value.toLocaleString("en") : value);

const FIELD_TEXTS = {
  written: (row) => new Date(row.written * 1000).toLocaleString("sv").slice(0, 16),
  questions: (row) => (row.kind === "sweep" ? (row.cells === undefined ? "" : `${row.done} of ${row.cells} cells`) : textOf(row.questions ?? null)),
};

export function figureText(figure) {
  if (!figure) return "";
  const [value, low, high] = figure;
  if (low !== undefined && low !== null) return `${value.toFixed(1)} [${low.toFixed(1)}, ${high.toFixed(1)}]`;
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

const settingOf = (text) => (text === undefined ? null : text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text);

/** Numbers by size, texts by the alphabet, nothing last. */
export function order(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// ---- the filter: words, key=value, key!=value, key>number, key<number

export function matcher(text, columns) {
  const named = new Map([...columns.values()].map((column) => [short(column.id), column]));
  named.set("tag", { value: (row) => row.tags ?? [] });
  named.set("sweep", { value: (row) => row.sweeps ?? [] });
  const terms = text.split(/\s+/).filter(Boolean).map((word) => {
    const [, key, sign, wanted] = /^([^=<>!]+)(!=|=|>|<)(.+)$/.exec(word) ?? [];
    const column = key && named.get(short(key));
    if (!column) return (row) => row.searched.includes(word.toLowerCase());
    return (row) => holds(column.value(row), sign, wanted);
  });
  return (row) => terms.every((term) => term(row));
}

function holds(value, sign, wanted) {
  if (sign === "=" || sign === "!=") {
    const same = (each) => String(each).toLowerCase() === wanted.toLowerCase();
    return (Array.isArray(value) ? value.some(same) : same(value ?? "")) === (sign === "=");
  }
  if (typeof value !== "number") return false;
  return sign === ">" ? value > Number(wanted) : value < Number(wanted);
}
