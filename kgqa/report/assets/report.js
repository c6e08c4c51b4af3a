// A run's trace explorer, after tables.js and graph.js. Texts of passages and models enter the page as text nodes only.

const byId = (id) => document.getElementById(id);
const ROW = 54; // height of a list row in pixels, as in the style sheet
const OUTCOMES = {
  wrong: (row) => row.em === 0 && row.error === null,
  right: (row) => row.em === 1,
  failed: (row) => row.error !== null,
  empty: (row) => row.answer !== null && !row.answer.trim(),
  flagged: (row) => Object.keys(row.flags).length > 0,
  won: (row) => row.em === 1 && row.other?.em === 0, // `other`: the answer of the run that the report stands against
  lost: (row) => row.em === 0 && row.other?.em === 1,
  disputed: (row) => row.em !== null && !["unscored", null].includes(row.verdict) && (row.verdict === "correct") !== (row.em === 1),
  unscored: (row) => row.verdict === "unscored",
  traced: (row) => row.traced,
};

const loaded = new Promise((resolve) => addEventListener("DOMContentLoaded", resolve));
let packed = null; // base64 lines: the shared paragraphs, then a trace for each row
let rows = [];
let shared = null;
let visible = []; // numbers of the rows that pass the filters
let current = -1; // number of the opened row
const drawn = new Map(); // row number -> its <li>

// ---- building elements

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, shown.map(([name, value]) => [element("dt", null, name), element("dd", null, value)]));
}

/** Folded; the inside is built when it is first opened. */
function folded(head, inside, open = false) {
  const node = element("details", null, element("summary", null, head));
  const build = () => node.childElementCount === 1 && node.append(element("div", null, inside()));
  node.addEventListener("toggle", () => node.open && build());
  if (open) {
    build();
    node.open = true;
  }
  return node;
}

function grid(header, lines) {
  const cell = (value) => element("td", null, value);
  return element(
    "div", { class: "wide" },
    element(
      "table", null,
      element("thead", null, element("tr", null, header.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", null, lines.map((line) => element("tr", null, line.map(cell)))),
    ),
  );
}

const spaced = (name) => name.replaceAll("_", " ");
const number = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(4) : String(value));
const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

// ---- unpacking

async function unpacked(line) {
  const bytes = Uint8Array.from(atob(line), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

async function allTraces() {
  await loaded; // the traces come after this script
  packed ??= byId("traces").textContent.split("\n");
}

/** Which rows have their calls in this page is known once all of it is read. */
async function noteTraced() {
  await allTraces();
  for (const [place, row] of rows.entries()) row.traced = packed[place + 1] !== "";
  if (byId("outcome").value === "traced") filter();
}

/** null: the page had no room for it. */
async function traceOf(place) {
  await allTraces();
  if (packed[place + 1] === "") return null;
  shared ??= await unpacked(packed[0]);
  const { value, paragraphs } = await unpacked(packed[place + 1]);
  const texts = paragraphs.map((each) => (typeof each === "number" ? shared[each] : each));
  return whole(value, texts);
}

/** Puts the paragraphs back where only their numbers stand. */
function whole(value, texts) {
  if (Array.isArray(value)) return value.map((each) => whole(each, texts));
  if (value === null || typeof value !== "object") return value;
  if ("\u0000" in value) return value["\u0000"].map((place) => texts[place]).join("\n\n");
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, whole(each, texts)]));
}

// ---- the list of questions

function filter() {
  const [wanted, hops, type] = ["outcome", "hops", "type"].map((id) => byId(id).value);
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  visible = [];
  for (const [place, row] of rows.entries()) {
    const passes = (!wanted || OUTCOMES[wanted](row)) && (!hops || String(row.hops) === hops) && (!type || row.type === type);
    if (passes && words.every((word) => row.searched.includes(word))) visible.push(place);
  }
  byId("shown").textContent = `${visible.length} of ${rows.length} questions`;
  byId("rows").style.height = `${visible.length * ROW}px`;
  for (const item of drawn.values()) item.remove();
  drawn.clear();
  byId("list").scrollTop = 0;
  draw();
}

/** Only the rows in sight are in the page, so the list is as quick with five thousand questions as with five. */
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
      const item = listed(visible[index]);
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

function listed(place) {
  const row = rows[place];
  const [sign, kind, said] = verdict(row);
  const answer = row.error !== null ? row.error : `${row.answer || "no answer"} · gold: ${row.gold[0]}`;
  const score = (row.f1 === null ? "" : `F1 ${percent(row.f1)} · `) + (row.verdict === null ? "" : `judge: ${spaced(row.verdict)} · `);
  const link = element(
    "a", { href: linkTo(row.id), title: row.question },
    element("span", { class: kind, role: "img", "aria-label": said }, sign),
    element("span", null, row.question),
    element("span", { class: "under" }, score, answer),
  );
  return element("li", { "aria-posinset": visible.indexOf(place) + 1, "aria-setsize": visible.length }, link);
}

function verdict(row) {
  if (row.error !== null) return ["!", "wrong", "failed"];
  if (row.em === null) return ["·", "", "not scored"];
  return row.em === 1 ? ["✓", "right", "right"] : ["✗", "wrong", "wrong"];
}

const linkTo = (id) => `#q=${encodeURIComponent(id)}`;

function step(by) {
  const at = visible.indexOf(current);
  const next = at < 0 ? 0 : at + by;
  if (next >= 0 && next < visible.length) location.hash = linkTo(rows[visible[next]].id);
}

function intoSight(place) {
  const list = byId("list");
  const top = visible.indexOf(place) * ROW;
  if (top < 0) return;
  if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
}

// ---- one question

async function open(place) {
  current = place;
  intoSight(place);
  draw();
  const traced = await traceOf(place);
  if (current !== place) return; // another was opened meanwhile
  const page = byId("question");
  page.replaceChildren(...questionView(rows[place], traced));
  page.scrollTop = 0;
  document.title = `${rows[place].id}: ${rows[place].question}`;
}

function questionView(row, traced) {
  const [, kind, said] = verdict(row);
  const back = element("a", { href: "#questions", id: "back" }, "← all questions");
  const flags = Object.entries(row.flags).map(([flag, count]) => mark(count > 1 ? `${flag} × ${count}` : flag, "wrong"));
  const figures = Object.entries(traced?.figures || {}).map(([name, value]) => mark(`${spaced(name)} ${number(value)}`));
  const summary = facts([
    ["answer", row.error === null ? row.answer || element("i", null, "empty") : element("span", { class: "wrong" }, row.error)],
    ["gold", row.gold.join(" | ")],
    ["scores", [`EM ${percent(row.em)} · F1 ${percent(row.f1)} · support recall ${percent(row.support_recall)}`]],
    ["other run", row.other && `${row.other.error ?? (row.other.answer || "empty")} (EM ${percent(row.other.em)} · F1 ${percent(row.other.f1)})`],
    ["judge", traced ? traced.judgement && judgementView(traced.judgement) : row.verdict && spaced(row.verdict)],
    ["cost", `${row.calls} calls · ${row.prompt_tokens} + ${row.output_tokens} tokens` + (row.context_tokens === null ? "" : ` · context ${row.context_tokens} tokens`)],
    ["flags", flags.length ? element("span", { class: "marks" }, flags) : null],
    ["figures", figures.length ? element("span", { class: "marks" }, figures) : null],
  ]);
  const marks = [mark(said, kind), mark(row.id), row.hops !== null && mark(`${row.hops} hops`), row.type && mark(row.type)];
  const head = [back, element("h2", null, row.question), element("div", { class: "marks" }, marks), summary];
  return traced ? [...head, ...ledView(traced)] : [...head, elsewhereView(row)];
}

/** Where the calls are that this page had no room for. */
function elsewhereView(row) {
  const command = `kgqa show ${byId("selection").dataset.run} ${row.id}`;
  return element("p", { class: "hint" }, "This page had no room for this question's passages and calls; they are in the run's trace: ", element("code", null, command));
}

/** What led to the answer: the method's notes, the passages, the calls. */
function ledView(traced) {
  const passages = passagesOf(traced);
  const titles = new Map(passages.map((passage) => [passage.id, passage.title]));
  const notes = Object.entries(traced.notes || {});
  return [
    ...notes.flatMap(([name, value]) => [element("h3", null, spaced(name)), name === "traversal" && value ? traversalView(value, traced) : noteView(value, titles)]),
    element("h3", null, `passages (${passages.length})`),
    ...passagesView(passages, traced),
    element("h3", null, `calls (${traced.calls.length})`),
    ...traced.calls.map((call) => folded(callHead(call), () => callView(call, titles))),
  ];
}

/** The verdict, who gave it, and what each judge wrote. */
function judgementView({ verdict, fate, judge, votes }) {
  const kinds = { correct: "right", incorrect: "wrong" };
  const written = votes.map((vote) => element("p", null, mark(spaced(vote.verdict ?? "unscored"), kinds[vote.verdict]), ` ${vote.error ?? vote.replies.join(" | ")}`));
  const said = fate === "exact" ? "an exact match, which was not sent" : judge;
  return [element("p", null, mark(spaced(verdict), kinds[verdict]), " ", element("span", { class: "hint" }, said)), ...written];
}

/** Those the question came with, then those its searches found. */
function passagesOf(traced) {
  const found = traced.calls.filter((call) => call.call === "search" && Array.isArray(call.reply)).flatMap((call) => call.reply);
  return [...new Map([...traced.question.passages, ...found].map((passage) => [passage.id, passage])).values()];
}

function passagesView(passages, traced) {
  const gold = new Set(traced.question.support);
  const place = new Map(traced.evidence.map((id, index) => [id, index + 1]));
  const extracted = new Map(traced.calls.filter((call) => call.call === "triples").map((call) => [call.passage_id, call.reply]));
  const important = (passage) => (place.has(passage.id) ? place.get(passage.id) - 1e6 : gold.has(passage.id) ? -1 : 0);
  return [...passages]
    .sort((a, b) => important(a) - important(b)) // used ones first, in their order
    .map((passage) => {
      const head = [passage.title || passage.id, gold.has(passage.id) && mark("gold", "gold"), place.has(passage.id) && mark(`used ${place.get(passage.id)}`, "used")];
      const triples = extracted.get(passage.id);
      const inside = () => [element("p", null, passage.text), Array.isArray(triples) && triplesView(triples, new Map())];
      return folded(head, inside, gold.has(passage.id));
    });
}

// ---- notes of methods: any nesting of objects, lists and texts

const isTriple = (value) => Array.isArray(value) && (value.length === 3 || value.length === 4) && value.every((part) => typeof part === "string");

/** A list of triples, each as [head, relation, tail, passage id?] or as "<head; relation; tail>"; null for anything else. */
function asTriples(value) {
  if (!Array.isArray(value) || !value.length) return null;
  const read = value.map((each) => (typeof each === "string" && /^<.*;.*;.*>$/s.test(each) ? each.slice(1, -1).split(";").map((part) => part.trim()) : each));
  return read.every(isTriple) ? read : null;
}

function noteView(value, titles) {
  if (value === null || value === undefined) return element("span", { class: "hint" }, "none");
  if (typeof value === "string") return value.includes("\n") ? element("pre", null, value) : element("span", null, titles.get(value) ?? value);
  if (typeof value !== "object") return element("span", null, number(value));
  if (Array.isArray(value) && !value.length) return element("span", { class: "hint" }, "none");
  const triples = asTriples(value);
  if (triples) return element("div", null, graphView(triples), triplesView(triples, titles));
  if (!Array.isArray(value)) return facts(Object.entries(value).map(([name, inner]) => [spaced(name), noteView(inner, titles)]));
  if (value.every(isChain)) {
    const best = value.find((chain) => chain.triples.length); // the first may have ended at once
    return element("div", null, value.map((chain, index) => chainView(chain, index, titles, chain === best)));
  }
  return element("ol", { class: "plain" }, value.map((each) => element("li", null, noteView(each, titles))));
}

/** KGP's walk: seeds in their order; below each step what was looked for and what was chosen, deeper with each hop. */
function traversalView({ agent, seeds, steps, paths }, traced) {
  const gold = new Set(traced.question.support);
  const texts = new Map(traced.evidence.map((id, index) => [id, (traced.evidence_titles ?? [])[index] || id]));
  for (const { id, title, text } of passagesOf(traced)) texts.set(id, `${title}: ${text}`);
  const passage = (id) => [element("span", { title: texts.get(id) ?? id }, shortened(texts.get(id) ?? id, 110)), gold.has(id) ? [" ", mark("gold", "gold")] : null];
  const stepView = ({ path, neighbours, evidence, chosen }) => {
    const wanted = evidence ? [element("i", null, evidence), ` among ${neighbours} neighbours`] : `${neighbours} neighbours`;
    const shown = element("li", null, passage(path[path.length - 1]), element("p", { class: "hint" }, evidence ? "looks for " : "chooses among ", wanted), element("ul", null, chosen.map((id) => element("li", null, passage(id)))));
    shown.style.marginLeft = `${1.5 * (path.length - 1)}em`;
    return shown;
  };
  const walked = new Set(steps.map((each) => each.path[0]));
  const unwalked = seeds.filter((id) => !walked.has(id)).map((id) => element("li", null, passage(id), " ", mark("the budget was spent")));
  return element("div", { class: "traversal" }, element("p", null, `agent ${agent} · ${seeds.length} seeds · ${paths.length} paths`), element("ol", { class: "plain" }, steps.map(stepView), unwalked));
}

const isChain = (value) => value !== null && typeof value === "object" && Array.isArray(value.triples) && "score" in value;

function chainView(chain, index, titles, open) {
  const text = chain.triples.map((parts) => (parts.length > 1 ? parts.slice(0, -1) : parts).join(" ")).join(" → ");
  const head = [`${index + 1}. log-probability ${number(chain.score)}`, mark(chain.ended ? "ended" : "not ended"), element("span", { class: "reply" }, text || "no triples")];
  return folded(head, () => noteView(chain.triples, titles), open);
}

// ---- calls

function callHead(call) {
  const usage = call.reply && call.reply.usage;
  return [
    `${call.path.join(".")} ${call.call}`,
    call.prompt && mark(call.prompt.template),
    call.role && mark(call.role),
    usage && mark(`${usage[0]} + ${usage[2]} tokens`),
    call.cached && mark("cached"),
    call.reply && call.reply.error !== undefined && mark(call.reply.error, "wrong"),
    element("span", { class: "reply" }, shortened(replyText(call), 200)),
  ];
}

function replyText(call) {
  const { reply } = call;
  if (reply === null || typeof reply !== "object") return String(reply);
  if (reply.error !== undefined) return reply.message;
  if (call.call === "generate") return reply.text;
  if (call.call === "choose") return ranked(reply.logprobs, call.options)[0].join(" ");
  if (call.call === "search") return reply.map((passage) => passage.title).join(" · ");
  if (call.call === "triples") return reply.map((triple) => `<${triple.join("; ")}>`).join(" ");
  return call.query ?? "";
}

/** [label, score] pairs, best first. */
function ranked(scores, labels) {
  const best = labels.map((label, index) => [label, scores[index]]);
  return best.sort((a, b) => (Number(b[1]) || -Infinity) - (Number(a[1]) || -Infinity) || 0).map(([label, value]) => [label, number(value)]);
}

function callView(call, titles) {
  const { reply } = call;
  if (reply && reply.error !== undefined) return [promptView(call), element("p", { class: "wrong" }, `${reply.error}: ${reply.message}`)];
  switch (call.call) {
    case "generate":
      return [promptView(call), thoughtView(reply), element("p", { class: "role" }, `reply (${reply.finish})`), element("pre", null, reply.text), usageView(call)];
    case "choose":
      return [promptView(call), thoughtView(reply), grid(["option", "log-probability", "probability"], ranked(reply.logprobs, call.options).map(([label, logprob]) => [label, logprob, bar(Math.exp(Number(logprob)))])), usageView(call)];
    case "rank":
      return [element("p", null, `query: ${call.query}`), element("p", { class: "role" }, `the best ${reply.length} of ${call.of} texts`), grid(["text", "score"], ranked(reply, call.texts))];
    case "search":
      return [element("p", null, `query: ${call.query} (k = ${call.k})`), element("ol", { class: "plain" }, reply.map((passage) => element("li", null, element("b", null, passage.title), ` ${passage.text}`)))];
    case "triples":
      return [element("p", null, titles.get(call.passage_id) ?? call.passage_id), triplesView(reply, titles)];
    default:
      return [element("pre", null, call.text ?? ""), element("p", null, `reply: ${JSON.stringify(reply)}`)];
  }
}

function bar(share) {
  const drawnBar = element("span", { class: "bar" });
  drawnBar.style.width = `${(100 * share).toFixed(1)}px`;
  return [drawnBar, ` ${percent(share)}`];
}

function promptView(call) {
  if (!call.prompt) return null;
  const parts = call.prompt.messages.map(([role, content]) => [element("p", { class: "role" }, role), element("pre", null, content)]);
  if (call.prompt.prefill) parts.push([element("p", { class: "role" }, "assistant, prefilled"), element("pre", null, call.prompt.prefill)]);
  return element("div", null, parts.flat());
}

function thoughtView(reply) {
  return reply.thought ? element("div", null, element("p", { class: "role" }, "thought"), element("pre", null, reply.thought)) : null;
}

function usageView(call) {
  const [prompt, cached, output, seconds, reasoning] = call.reply.usage;
  const thought = reasoning ? ` (${reasoning} in thought)` : "";
  const flags = call.reply.flags.length ? ` · flags: ${call.reply.flags.join(", ")}` : "";
  return element("p", { class: "role" }, `${prompt} prompt tokens (${cached} from the engine's cache), ${output} generated${thought}, ${seconds} s${call.cached ? ", reply from the call cache" : ""}${flags}`);
}

// ---- views, keys, theme

async function navigate() {
  const wanted = location.hash.startsWith("#q=") ? decodeURIComponent(location.hash.slice(3)) : null;
  const exploring = wanted !== null || location.hash === "#questions";
  byId("tables").hidden = exploring;
  byId("explorer").hidden = !exploring;
  byId("explorer").classList.toggle("open", wanted !== null);
  byId("to-report").toggleAttribute("aria-current", !exploring);
  byId("to-questions").toggleAttribute("aria-current", exploring);
  document.documentElement.style.setProperty("--top", `${document.querySelector("header").offsetHeight}px`);
  if (!exploring) return;
  draw();
  const place = rows.findIndex((row) => row.id === wanted);
  if (place >= 0) await open(place);
  else if (wanted !== null) byId("question").replaceChildren(element("p", { class: "hint" }, `No question ${wanted} in this run.`));
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
    void navigate(); // at once: what is hidden takes no focus
  }
  byId(id).focus();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

function offer(id, values) {
  const known = [...new Set(values)].filter((value) => value !== null && value !== "").sort();
  byId(id).append(...known.map((value) => element("option", { value }, id === "hops" ? `${value} hops` : value)));
  byId(id).hidden = known.length < 2;
}

async function start() {
  byId("theme").addEventListener("click", switchTheme);
  rows = await unpacked(byId("index").textContent);
  for (const row of rows) row.searched = [row.id, row.question, row.answer ?? "", row.error ?? "", ...row.gold].join("\n").toLowerCase();
  byId("count").textContent = rows.length;
  offer("hops", rows.map((row) => row.hops));
  offer("type", rows.map((row) => row.type));
  for (const id of ["disputed", "unscored"]) byId("outcome").querySelector(`[value=${id}]`).hidden = rows.every((row) => row.verdict === null);
  for (const id of ["won", "lost"]) byId("outcome").querySelector(`[value=${id}]`).hidden = rows.every((row) => row.other === null);
  if (byId("selection")) void noteTraced();
  for (const id of ["outcome", "hops", "type", "search"]) byId(id).addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("list").addEventListener("scroll", draw);
  addEventListener("resize", draw);
  addEventListener("hashchange", () => void navigate());
  addEventListener("keydown", pressed);
  filter();
  await navigate();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `The questions cannot be shown (${error.message}); a browser of 2024 or later can.`;
});
