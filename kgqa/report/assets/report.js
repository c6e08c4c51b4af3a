// The trace explorer of a run. It uses the other scripts (page.py). Passages and replies enter the page as text nodes only.

const byId = (id) => document.getElementById(id);
const ROW = 54; // height of a list row in pixels, as in the style sheet
const OUTCOMES = {
  wrong: (row) => row.em === 0 && row.error === null,
  right: (row) => row.em === 100,
  failed: (row) => row.error !== null,
  empty: (row) => row.answer !== null && !row.answer.trim(),
  flagged: (row) => Object.keys(row.flags).length > 0,
  disputed: (row) => row.em !== null && !["unscored", null].includes(row.verdict) && (row.verdict === "correct") !== (row.em === 100),
  unscored: (row) => row.verdict === "unscored",
};

const used = (row) => row.prompt_tokens + row.output_tokens;
const ORDERS = { // of the list. Equal rows keep the order of the data file.
  f1: (a, b) => (a.f1 ?? 2) - (b.f1 ?? 2),
  calls: (a, b) => b.model_calls - a.model_calls,
  tokens: (a, b) => used(b) - used(a),
  context: (a, b) => (b.context_tokens ?? -1) - (a.context_tokens ?? -1),
  id: (a, b) => a.question_id.localeCompare(b.question_id, "en", { numeric: true }),
};

const loaded = new Promise((resolve) => addEventListener("DOMContentLoaded", resolve));
let packed = null; // a base64 line for each row, after one with the texts that questions share
let rows = [];
let visible = []; // numbers of the rows that pass the filters
let current = -1; // number of the opened row
let openedCall = null; // the path of the call that the address names
const drawn = new Map(); // row number -> its <li>

/** Returns null if the page had no room for the calls. */
async function traceOf(place) {
  await loaded; // the traces come after this script
  packed ??= byId("traces").textContent.split("\n");
  if (packed[place + 1] === "") return null;
  const shared = await unpacked(packed[0]);
  const { value, paragraphs } = await unpacked(packed[place + 1]);
  return whole(value, [...shared, ...paragraphs]);
}

// ---- the list of questions

async function readRows() {
  rows = await unpacked(byId("index").textContent);
  for (const row of rows) row.searched = [row.question_id, row.question, row.answer ?? "", row.error ?? "", ...row.gold].join("\n").toLowerCase();
  byId("count").textContent = rows.length;
}

function filter() {
  const [wanted, hops, type] = ["outcome", "hops", "type"].map((id) => byId(id).value);
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  visible = [];
  for (const [place, row] of rows.entries()) {
    const passes = (!wanted || OUTCOMES[wanted](row)) && (!hops || String(row.hops) === hops) && (!type || row.type === type);
    if (passes && words.every((word) => row.searched.includes(word))) visible.push(place);
  }
  const order = ORDERS[byId("order").value];
  if (order) visible.sort((a, b) => order(rows[a], rows[b]) || a - b);
  byId("shown").textContent = `${visible.length} of ${rows.length} questions`;
  byId("rows").style.height = `${visible.length * ROW}px`;
  for (const item of drawn.values()) item.remove();
  drawn.clear();
  byId("list").scrollTop = 0;
  draw();
  showPlace();
}

/** Adds only the visible rows to the page, so that long lists stay fast. */
function draw() {
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
  const last = Math.min(visible.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 5);
  const wanted = new Set(visible.slice(first, last));
  for (const [place, item] of drawn) {
    if (!wanted.has(place)) {
      item.remove();
      drawn.delete(place);
    }
  }
  for (let index = first; index < last; index += 1) {
    if (!drawn.has(visible[index])) {
      const item = listed(visible[index], index);
      item.style.top = `${index * ROW}px`;
      drawn.set(visible[index], item);
      byId("rows").append(item);
    }
  }
  for (const [place, item] of drawn) {
    if (place === current) item.firstChild.setAttribute("aria-current", "true");
    else item.firstChild.removeAttribute("aria-current");
  }
}

function listed(place, index) {
  const row = rows[place];
  const [sign, kind, said] = verdict(row);
  const answer = row.error !== null ? row.error : (row.answer || "no answer") + (row.gold.length ? ` · gold: ${row.gold[0]}` : "");
  const score = (row.f1 === null ? "" : `F1 ${points(row.f1)} · `) + (row.verdict === null ? "" : `judge: ${spaced(row.verdict)} · `);
  const link = element(
    "a", { href: linkTo(row.question_id), title: row.question },
    element("span", { class: kind, role: "img", "aria-label": said }, sign),
    element("span", null, row.question),
    element("span", { class: "under" }, score, answer),
  );
  return element("li", { "aria-posinset": index + 1, "aria-setsize": visible.length }, link);
}

function step(by) {
  const at = visible.indexOf(current);
  const next = at < 0 ? 0 : at + by;
  if (next >= 0 && next < visible.length) location.hash = linkTo(rows[visible[next]].question_id);
}

/** Shows the place of the opened question in the list, between links to its neighbors. */
function showPlace() {
  const at = visible.indexOf(current);
  byId("place").hidden = rows.length < 2 || current < 0;
  const link = (name, key, place) => (place in visible && at >= 0 ? element("a", { href: linkTo(rows[visible[place]].question_id), title: `key ${key}` }, name) : element("span", { class: "hint" }, name));
  byId("place").replaceChildren(link("← previous", "k", at - 1), element("span", null, at < 0 ? "not in the list" : `${at + 1} of ${visible.length}`), link("next →", "j", at + 1));
}

function intoSight(place) {
  const list = byId("list");
  const top = visible.indexOf(place) * ROW;
  if (top < 0) return;
  if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
}

/** Downloads the listed questions. */
function downloadShown(form) {
  const lines = visible.map((place) => rows[place]);
  const names = Object.keys(lines[0] ?? {}).filter((name) => name !== "searched");
  if (form === "csv") downloaded("questions.csv", "text/csv", csvOf(lines, names));
  else downloaded("questions.jsonl", "application/jsonl", jsonlOf(lines, names));
}

// ---- one question

async function open(place, call) {
  if (current === place && openedCall !== call) {
    openedCall = call;
    return showCall(call);
  }
  [current, openedCall] = [place, call];
  intoSight(place);
  draw();
  const traced = await traceOf(place);
  if (current !== place) return; // another question was opened
  // kgqa view has a page for each question. "Back" leads to the page before this one
  if (traced === null && document.body.dataset.pages) return location.replace(pageOf(rows[place].question_id));
  showPlace();
  byId("opened").replaceChildren(...questionView(rows[place], traced));
  byId("question").scrollTop = 0;
  showCall(call);
  document.title = `${rows[place].question_id}: ${rows[place].question}`;
}

/** Returns the address of a question's page in kgqa view, where the list has the same filters. */
function pageOf(id) {
  return `${document.body.dataset.pages}&id=${encodeURIComponent(wellFormed(id))}&${new URLSearchParams(new FormData(byId("filters")))}`;
}

/** Opens the first wrong question, or the first one, if list and question are side by side. */
function preview() {
  if (current >= 0 || !visible.length || byId("question").offsetHeight === 0) return;
  const wrong = visible.find((place) => OUTCOMES.wrong(rows[place]) || OUTCOMES.failed(rows[place]));
  void open(wrong ?? visible[0], null);
}

// ---- views, keys

/** Returns question and call of the address #q=ID&call=PATH, or null for each that is missing. */
function addressed() {
  const [, id, call] = /^#q=([^&]*)(?:&call=([\d.]+))?/.exec(location.hash) ?? [];
  try {
    return [id === undefined ? null : decodeURIComponent(id), call ?? null];
  } catch {
    return [id, null]; // an incomplete escape matches no id
  }
}

async function navigate() {
  const [wanted, call] = addressed();
  const exploring = wanted !== null || location.hash === "#questions";
  byId("tables").hidden = exploring;
  byId("explorer").hidden = !exploring;
  byId("explorer").classList.toggle("open", wanted !== null);
  byId("to-report").toggleAttribute("aria-current", !exploring);
  byId("to-questions").toggleAttribute("aria-current", exploring);
  document.documentElement.style.setProperty("--top", `${byId("explorer").getBoundingClientRect().top + scrollY}px`);
  if (!exploring) return;
  draw();
  const place = rows.findIndex((row) => wellFormed(row.question_id) === wanted);
  if (place >= 0) await open(place, call);
  else if (wanted !== null) byId("opened").replaceChildren(element("p", { class: "hint" }, `No question ${wanted} in this run.`));
  else preview();
}

function pressed(event) {
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else location.hash = location.hash.startsWith("#q=") ? "#questions" : "#report";
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => focusOn("search"),
    f: () => focusOn("outcome"),
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
}

function focusOn(id) {
  if (byId("browse").offsetHeight === 0) {
    location.hash = "#questions";
    void navigate(); // now, because hidden elements get no focus
  }
  byId(id).focus();
}

function offer(id, values) {
  const known = [...new Set(values)].filter((value) => value !== null && value !== "").sort();
  byId(id).append(...known.map((value) => element("option", { value }, id === "hops" ? `${value} hops` : value)));
  byId(id).hidden = known.length < 2;
}

/** Hides the outcomes that no question has, and the orders in which all questions are equal. */
function hideUnused() {
  for (const option of [...byId("outcome").options].slice(1)) option.hidden = !rows.some(OUTCOMES[option.value]);
  for (const option of [...byId("order").options].slice(1)) option.hidden = rows.every((row) => ORDERS[option.value](row, rows[0]) === 0);
}

async function start() {
  await readRows();
  offer("hops", rows.map((row) => row.hops));
  offer("type", rows.map((row) => row.type));
  for (const [name, value] of new URLSearchParams(location.search)) if (byId("filters").elements[name]) byId(name).value = value;
  filter();
  for (const id of ["outcome", "hops", "type", "order", "search"]) byId(id).addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const form of ["csv", "jsonl"]) byId(form).addEventListener("click", () => downloadShown(form));
  copyableTables();
  byId("list").addEventListener("scroll", draw);
  addEventListener("resize", draw);
  addEventListener("hashchange", () => void navigate());
  addEventListener("keydown", pressed);
  hideUnused();
  await navigate();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `The questions cannot be shown (${error.message}); a browser of 2024 or later can.`;
});
