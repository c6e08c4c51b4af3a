// One question with its answer and calls. Passages and replies enter the page as text nodes only.

// ---- building elements

const mark = (text, kind = "") => element("span", { class: `mark ${kind}` }, text);

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return element("dl", { class: "facts" }, shown.map(([name, value]) => [element("dt", null, name), element("dd", null, value)]));
}

/** A folded part. Its content is built when it is opened for the first time. */
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

/** One decimal, rounded as score_text of kgqa/util/text.py does in the tables. */
function scoreText(score) {
  const exact = Math.round(score * 1e6) / 1e6;
  // Python rounds a half to the even digit: 5.25 to 5.2. toFixed rounds it away from 0, which is the same for 5.75
  const text = (Math.abs(exact) % 1 === 0.25 ? Math.trunc(exact) + Math.sign(exact) * 0.2 : exact).toFixed(1);
  return text === "-0.0" ? "0.0" : text;
}

const spaced = (name) => name.replaceAll("_", " ");
const number = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(4) : String(value));
const amount = (value) => value.toLocaleString("en", { maximumFractionDigits: 4 });
const points = (score) => (score === null ? "–" : `${scoreText(score)} %`);
const percent = (share) => points(share === null ? null : 100 * share);

const STEPS = { right: ["✓", "right", "right"], wrong: ["✗", "wrong", "wrong"] };

/** Sign, class and word of a row's outcome. */
function verdict(row) {
  if (row.error !== null) return ["!", "wrong", "failed"];
  if (row.em === null) return ["·", "", "not scored"];
  return row.em === 100 ? STEPS.right : STEPS.wrong;
}

/** Addresses cannot contain half a surrogate pair, ids can. */
const wellFormed = (id) => id.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
const linkTo = (id) => `#q=${encodeURIComponent(wellFormed(id))}`;

// ---- downloads

function saving(name, file, value) {
  const button = element("button", { type: "button", class: "small" }, name);
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(value(), null, 2)], { type: "application/json" }));
    element("a", { href: url, download: file.replace(/[^\w.-]+/g, "_") }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  return button;
}

// ---- a question

function questionView(row, traced) {
  const [, kind, said] = verdict(row);
  const back = element("a", { href: "#questions", id: "back" }, "← all questions");
  const flags = Object.entries(row.flags).map(([flag, count]) => flagView(flag, count, traced?.meanings?.[flag]));
  const figures = Object.entries(traced?.figures || {}).map(([name, value]) => mark(`${spaced(name)} ${amount(value)}`));
  const scores = { EM: row.em, F1: row.f1, "support recall": row.support_recall, ...traced?.own_scores };
  const summary = facts([
    ["answer", row.error === null ? row.answer || element("i", null, "empty") : element("span", { class: "wrong" }, row.error)],
    ["gold", row.gold.length ? row.gold.join(" | ") : null], // questions of `kgqa ask` have no gold answer and no scores
    ["scores", row.gold.length === 0 ? null : [Object.entries(scores).map(([name, score]) => `${name} ${points(score)}`).join(" · ")]],
    ["judge", traced ? traced.judgement && judgementView(traced.judgement) : row.verdict && spaced(row.verdict)],
    ["cost", row.calls !== null && `${modelCalls(row, traced)} · ${tokens(row.prompt_tokens, row.output_tokens)}` + (row.context_tokens === null ? "" : ` · ${amount(row.context_tokens)} tokens of context for the reader`)],
    ["extraction", traced && extraction(traced)],
    ["other calls", traced && otherCalls(traced)],
    ["flags", flags.length ? flags : null],
    ["figures", figures.length ? element("span", { class: "marks" }, figures) : null],
  ]);
  const marks = [mark(row.em === null || row.error !== null ? said : `${said} by exact match`, kind), mark(row.question_id), row.hops !== null && mark(`${row.hops} hops`), row.type && mark(row.type)];
  const take = traced && element("p", { class: "take" }, copying("copy answer", () => traced.answer ?? row.error ?? ""), saving("save as JSON", `${row.question_id}.json`, () => ({ row, ...traced })));
  const head = [back, element("h2", null, row.question), element("div", { class: "marks" }, marks), summary, take].filter(Boolean);
  return traced ? [...head, ...ledView(row, traced)] : [...head, elsewhereView(row)];
}

/** A flag with its number and its meaning. A flag of the user's own method has no meaning. */
function flagView(flag, count, meaning) {
  return element("p", null, mark(count > 1 ? `${flag} × ${count}` : flag, "wrong"), meaning && element("span", { class: "hint" }, ` ${meaning}`));
}

/** The command for calls that this page has no room for. */
function elsewhereView(row) {
  const command = `kgqa show ${byId("selection").dataset.run} ${row.question_id}`;
  return element("p", { class: "hint" }, "This page had no room for this question's passages and calls; they are in the run's trace: ", element("code", null, command));
}

const isModelCall = (call) => call.call === "generate" || call.call === "choose";
const tokens = (prompt, output) => `${amount(prompt)} prompt and ${amount(output)} generated tokens`;

/** Whether a call answers another one, such as a call of the extraction, as `choose_own_calls` decides it. */
function isInner(call, calls) {
  const start = (each) => each.call !== "run_agent" && each.path.length < call.path.length && each.path.every((step, place) => step === call.path[place]);
  return calls.some(start);
}

/** The number of model calls by role, as the run's cost counts them. */
function modelCalls(row, traced) {
  if (!traced) return row.model_calls === null ? `${row.calls} calls` : `${row.model_calls} model calls`;
  return countCalls(traced.calls.filter((call) => isModelCall(call) && !isInner(call, traced.calls)));
}

/** The model calls that extracted triples for the question and their tokens, or null. */
function extraction(traced) {
  const calls = traced.calls.filter((call) => isModelCall(call) && isInner(call, traced.calls));
  const sum = (place) => calls.reduce((total, call) => total + (call.reply.usage?.[place] ?? 0), 0);
  return calls.length ? `${countCalls(calls)} · ${tokens(sum(0), sum(2))}` : null;
}

function countCalls(calls) {
  const roles = counted(calls.map((call) => call.role ?? call.call));
  const failed = calls.filter((call) => call.reply?.error !== undefined).length;
  return `${calls.length} model call${calls.length === 1 ? "" : "s"}${roles && ` (${roles})`}${failed ? `, ${failed} failed` : ""}`;
}

/** The number of other calls by kind, or null. */
function otherCalls(traced) {
  const names = { triples: ["passage with triples", "passages with triples"], count_tokens: ["token count", "token counts"], rank: ["ranking", "rankings"], search: ["search", "searches"], neighbours: ["neighbour look-up", "neighbour look-ups"] };
  const others = traced.calls.filter((call) => !isModelCall(call)).map((call) => call.call);
  return others.length ? counted(others, (name, count) => names[name]?.[count === 1 ? 0 : 1] ?? name) : null;
}

/** "2 reader, 1 selector", the most frequent first. */
function counted(names, written = (name) => name) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => `${count} ${written(name, count)}`).join(", ");
}

const methodNote = (name, value, traced, titles) => (name === "traversal" && value ? traversalView(value, traced) : noteView(value, titles, traced.answer));

const noteTitle = (name) => (name === "demonstrations" ? "few-shot examples in the prompt" : spaced(name));

/** The method's notes, the passages and the calls. */
function ledView(row, traced) {
  const passages = passagesOf(traced);
  const titles = new Map(passages.map((passage) => [passage.id, passage.title]));
  const notes = Object.entries(traced.notes || {});
  return [
    ...notes.flatMap(([name, value]) => [element("h3", null, noteTitle(name)), methodNote(name, value, traced, titles)]),
    element("h3", null, `passages (${passages.length})`),
    ...passagesView(passages, traced),
    element("h3", null, `calls (${traced.calls.length})`),
    ...traced.calls.map((call) => {
      const node = folded(callHead(call), () => [...callView(call, traced, titles), takeView(call, traced.question.id)]);
      node.dataset.call = call.path.join(".");
      return node;
    }),
  ];
}

/** Opens the call with this path and scrolls to it. */
function showCall(path) {
  const node = path && [...document.querySelectorAll("details[data-call]")].find((each) => each.dataset.call === path);
  if (!node) return;
  node.open = true;
  node.firstChild.focus({ preventScroll: true });
  node.scrollIntoView({ block: "start" });
}

function takeView(call, id) {
  const path = call.path.join(".");
  const prompt = call.prompt && copying("copy prompt", () => call.prompt.messages.map(([role, content]) => `${role}:\n${content}`).join("\n\n") + (call.prompt.prefill ?? ""));
  return element("p", { class: "take" },
    element("a", { href: `${linkTo(id)}&call=${path}` }, "link to this call"),
    prompt, copying("copy reply", () => replyText(call)), saving("save as JSON", `${id}-${path}.json`, () => call));
}

/** The verdict, the judge and the replies. A single reply has the verdict above it. */
function judgementView({ verdict, fate, judge, votes }) {
  const kinds = { correct: "right", incorrect: "wrong" };
  const [name, ...models] = judge.split(" ").slice(0, -1); // without the hash of its settings
  const said = fate === "exact" ? `${name}: an exact match, which was not sent` : `${name}${models.length ? ` (${models.join(", ")})` : ""}`;
  const texts = ({ error, replies }) => error ?? (replies.length ? `reply: ${replies.join(" | ")}` : null);
  const own = ({ verdict: each }) => votes.length > 1 && [mark(spaced(each ?? "unscored"), kinds[each]), " "];
  const written = votes.filter((vote) => votes.length > 1 || texts(vote)).map((vote) => element("p", null, own(vote), element("span", { class: "hint" }, texts(vote))));
  return [element("p", null, mark(spaced(verdict), kinds[verdict]), " by ", said), ...written];
}

/** The question's own passages, then those of its searches. */
function passagesOf(traced) {
  const items = traced.calls.flatMap((call) => (Array.isArray(call.reply) ? call.reply : []));
  const found = items.filter((item) => item?.id !== undefined && item.title !== undefined && item.text !== undefined);
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

/** isSteps: the triples are the steps of a chain, in their order. */
function noteView(value, titles, answer = null, isSteps = false) {
  if (value === null || value === undefined) return element("span", { class: "hint" }, "none");
  if (typeof value === "string") return value.includes("\n") ? element("pre", { tabindex: 0 }, value) : element("span", null, titles.get(value) ?? value);
  if (typeof value !== "object") return element("span", null, number(value));
  if (Array.isArray(value) && !value.length) return element("span", { class: "hint" }, "none");
  const triples = asTriples(value);
  if (triples) return element("div", null, (isSteps || triples.length > 1) && graphView(triples, answer, isSteps), triplesView(triples, titles, answer));
  if (!Array.isArray(value)) return facts(Object.entries(value).map(([name, inner]) => [spaced(name), noteView(inner, titles, answer)]));
  if (value.every(isChain)) {
    const long = value.filter((chain) => chain.triples.length); // the first can be empty
    const best = long.find((chain) => hasAnswer(chain, answer)) ?? long[0];
    return element("div", null, value.map((chain, index) => chainView(chain, index, titles, chain === best, answer)));
  }
  return element("ol", { class: "plain" }, value.map((each) => element("li", null, noteView(each, titles, answer))));
}

/** KGP's walk: the seeds in order, below each of them its steps, indented by hop. */
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
  return element("div", { class: "traversal" }, element("p", null, `agent ${agent} · ${seeds.length} seeds · ${paths.length} paths`), walkLegend(), ...walkedPictures(seeds, steps, traced), element("ol", { class: "plain" }, steps.map(stepView), unwalked));
}

/** A picture of the walks to gold passages, with a button that shows all passages and neighbors. */
function walkedPictures(seeds, steps, traced) {
  const around = new Map(traced.calls.filter((call) => call.call === "neighbours" && Array.isArray(call.reply)).map((call) => [call.passage_id, call.reply]));
  const shown = new Map(traced.evidence.map((id, index) => [id, { where: (traced.evidence_titles ?? [])[index] || id, text: "" }]));
  for (const { id, title, text } of passagesOf(traced)) shown.set(id, { where: title, text });
  const gold = new Set(traced.question.support);
  const drawn = (from, walked) => walkPicture({ seeds: from, steps: walked }, shown, (id) => (gold.has(id) ? "gold" : ""));
  const all = () => drawn(seeds, steps.map(({ path, chosen }) => ({ start: path.at(-1), chosen, aside: around.get(path.at(-1)) ?? [] })));
  const [from, walks] = walksTo(gold, seeds, steps);
  if (!from.length) return [zoomable(all())];
  const frame = zoomable(drawn(from, walks));
  const more = element("button", { type: "button", class: "small" }, "show all passages");
  more.addEventListener("click", () => {
    frame.show(all());
    more.remove();
  });
  return [element("p", { class: "take" }, more), frame];
}

/** Seeds and steps of the walks that end at one of these passages, unless it is a seed. */
function walksTo(ends, seeds, steps) {
  const edge = (start, end) => JSON.stringify([start, end]);
  const walks = steps.flatMap(({ path, chosen }) => chosen.filter((id) => ends.has(id) && !seeds.includes(id)).map((id) => [...path, id]));
  const edges = new Set(walks.flatMap((walk) => walk.slice(1).map((id, place) => edge(walk[place], id))));
  const kept = steps.map(({ path, chosen }) => ({ start: path.at(-1), chosen: chosen.filter((id) => edges.has(edge(path.at(-1), id))), aside: [] })).filter(({ chosen }) => chosen.length);
  return [seeds.filter((id) => ends.has(id) || walks.some((walk) => walk[0] === id)), kept];
}

const isChain = (value) => value !== null && typeof value === "object" && Array.isArray(value.triples) && "score" in value;

const partsOf = (unit) => (unit.length > 1 ? unit.slice(0, -1) : unit); // without the id of its passage
const hasAnswer = (chain, answer) => chain.triples.some((unit) => partsOf(unit).some((part) => holds(part, answer)));
const answerMark = (texts, answer) => (texts.some((text) => holds(text, answer)) ? mark("answer", "used") : null);

function chainView(chain, index, titles, open, answer) {
  const text = chain.triples.map((unit) => partsOf(unit).join(" ")).join(" → ");
  const state = chain.ended ? "complete" : "longest length reached";
  const head = [`${index + 1}. log-probability ${Number(chain.score).toFixed(2)}`, mark(state), hasAnswer(chain, answer) && mark("answer", "used"), element("span", { class: "reply" }, text || "no triples")];
  return folded(head, () => (asTriples(chain.triples) || !chain.triples.length ? noteView(chain.triples, titles, answer, true) : stepsView(chain.triples, titles, answer)), open);
}

/** The steps of a chain of sentences or documents. */
function stepsView(units, titles, answer) {
  return element("ol", null, units.map((unit) => element("li", null, partsOf(unit).join(" "), " ", mark(titles.get(unit[unit.length - 1]) ?? unit[unit.length - 1]), " ", answerMark(partsOf(unit), answer))));
}

function triplesView(triples, titles, answer = null) {
  return element("div", null, triples.map(([head, relation, tail, passage]) =>
    element("p", { class: "triple" }, head, " — ", element("b", null, relation), " → ", tail, passage ? mark(titles.get(passage) ?? passage) : null, answerMark([head, tail], answer))));
}

// ---- calls

function callHead(call) {
  const usage = call.reply && call.reply.usage;
  return [
    `${call.path.join(".")} ${call.call}`,
    call.prompt && mark(call.prompt.template),
    call.role && mark(call.role),
    usage && mark(`${amount(usage[0])} + ${amount(usage[2])} tokens`),
    call.cached && mark("cached"),
    call.reply && call.reply.error !== undefined && mark(call.reply.error, "wrong"),
    element("span", { class: "reply" }, shortened(replyText(call), 200)),
  ];
}

const generatedText = (reply) => [reply.text, ...toolCalls(reply.tool_calls)].filter(Boolean).join("\n");

function replyText(call) {
  const { reply } = call;
  if (reply === null || typeof reply !== "object") return String(reply);
  if (reply.error !== undefined) return reply.message;
  if (call.call === "generate") return generatedText(reply);
  if (call.call === "choose") return optionRows(call).slice(0, 1).map(([label, text, , share]) => `${label}${text && `. ${text}`}  ${percent(share)}`).join("");
  if (call.call === "search") return reply.map((passage) => passage.title).join(" · ");
  if (call.call === "triples" || call.call === "facts") return reply.map((triple) => `<${triple.join("; ")}>`).join(" ");
  return call.query ?? "";
}

/** [label, score] pairs, best first. */
function ranked(scores, labels) {
  const best = labels.map((label, index) => [label, scores[index]]);
  return best.sort((a, b) => (Number(b[1]) || -Infinity) - (Number(a[1]) || -Infinity) || 0).map(([label, value]) => [label, number(value)]);
}

function callView(call, traced, titles) {
  const { reply } = call;
  if (reply && reply.error !== undefined) return [promptView(call, traced), element("p", { class: "wrong" }, `${reply.error}: ${reply.message}`)];
  switch (call.call) {
    case "generate":
      return [promptView(call, traced), thoughtView(reply), element("p", { class: "role" }, `reply (${reply.finish})`), element("pre", { tabindex: 0 }, generatedText(reply)), usageView(call)];
    case "choose":
      return [promptView(call, traced), thoughtView(reply), optionsView(call), usageView(call)];
    case "rank":
      return [element("p", null, `query: ${call.query}`), element("p", { class: "role" }, `the best ${reply.length} of ${call.of} texts`), grid(["text", "score"], ranked(reply, call.texts))];
    case "search":
      return [element("p", null, `query: ${call.query} (k = ${call.k})`), element("ol", { class: "plain" }, reply.map((passage) => element("li", null, element("b", null, passage.title), ` ${passage.text}`)))];
    case "facts":
      return [element("p", null, `query: ${call.query} (k = ${call.k})`), element("p", null, replyText(call))];
    case "triples":
      return [element("p", null, titles.get(call.passage_id) ?? call.passage_id), triplesView(reply, titles)];
    default:
      return [element("pre", { tabindex: 0 }, call.text ?? ""), element("p", null, `reply: ${JSON.stringify(reply)}`)];
  }
}

function bar(share) {
  const drawnBar = element("span", { class: "bar" });
  drawnBar.style.width = `${(100 * share).toFixed(1)}px`;
  return [drawnBar, ` ${percent(share)}`];
}

function thoughtView(reply) {
  return reply.thought ? element("div", null, element("p", { class: "role" }, "thought"), element("pre", { tabindex: 0 }, reply.thought)) : null;
}

function usageView(call) {
  const [prompt, cached, output, seconds, reasoning] = call.reply.usage;
  const thought = reasoning ? ` (${reasoning} in thought)` : "";
  const flags = call.reply.flags.length ? ` · flags: ${call.reply.flags.join(", ")}` : "";
  return element("p", { class: "role" }, `${prompt} prompt tokens (${cached} from the engine's cache), ${output} generated${thought}, ${seconds} s${call.cached ? ", reply from the call cache" : ""}${flags}`);
}
