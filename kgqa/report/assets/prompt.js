// A prompt in parts that fold: instruction, few-shot examples, the question's own part, its options.
// The lines of the prompt decide where a part starts. A strange passage can move a fold, but no text is lost.

const LONG = 800; // characters: a longer context is folded
const LABEL = /^([A-Z][A-Za-z -]{0,24}):(\s|$)/; // the start of a part

function promptView(call, traced) {
  if (!call.prompt) return null;
  const parts = promptParts(call, traced).map(({ name, text, open }) => {
    const head = [name, " ", element("span", { class: "hint" }, `${text.length.toLocaleString("en")} characters`)];
    return folded(head, () => element("pre", { tabindex: 0 }, text), open);
  });
  return element("div", { class: "prompt" }, element("p", { class: "role" }, "prompt"), parts);
}

/** Returns {name, text, open} in the order of the prompt. */
function promptParts(call, traced) {
  const { messages, prefill } = call.prompt;
  const last = messages.length - 1;
  const systemFirst = messages[0][0] === "system" && last > 0;
  const parts = messages.flatMap(([role, content, further], place) => {
    const text = [content, ...toolCalls(further)].filter(Boolean).join("\n");
    const paragraphs = text.split("\n\n");
    if (place === 0 && systemFirst) return shownParts(paragraphs, 1, paragraphs.length);
    if (place < last) return [{ name: role, text, open: false }];
    const start = systemFirst ? 0 : caseStart(paragraphs, traced);
    return [...shownParts(paragraphs, firstExample(paragraphs, start), start), ...caseParts(paragraphs.slice(start), call, traced)];
  });
  if (prefill) parts.push({ name: "the reply begins", text: prefill, open: true });
  return parts.filter(({ text }) => text.trim());
}

/** Returns a line per tool call of a message or reply. */
const toolCalls = (calls) => (Array.isArray(calls) ? calls.map(([, name, given]) => `calls ${name} ${given}`) : []);

function shownParts(paragraphs, examples, end) {
  const text = (from, to) => paragraphs.slice(from, to).join("\n\n");
  return [
    { name: "instruction", text: text(0, Math.min(examples, end)), open: false },
    { name: "demonstrations", text: text(examples, end), open: false },
  ];
}

/** Returns the paragraph where the question's own part starts: its text, its passages, or the last label of its kind. */
function caseStart(paragraphs, traced) {
  const texts = passagesOf(traced).map((passage) => passage.text.slice(0, 40)).filter((text) => text.length > 20);
  const own = [traced.question.text, ...texts];
  const mine = paragraphs.findIndex((paragraph) => own.some((text) => paragraph.includes(text)));
  const first = LABEL.exec(paragraphs[firstExample(paragraphs, paragraphs.length)] ?? "");
  const labelled = first ? paragraphs.findLastIndex((paragraph) => paragraph.startsWith(`${first[1]}:`)) : -1;
  const asks = paragraphs.findIndex((paragraph) => paragraph.includes(traced.question.text));
  const kind = LABEL.exec(paragraphs[asks] ?? "")?.[1];
  const others = paragraphs.slice(Math.max(labelled, 0), Math.max(asks, 0)).some((paragraph) => kind && paragraph.startsWith(`${kind}:`));
  const starts = [mine, others && mine >= 0 ? -1 : labelled].filter((place) => place >= 0); // other questions between are few-shot examples
  return starts.length ? Math.min(...starts) : paragraphs.length - 1;
}

function firstExample(paragraphs, end) {
  const place = paragraphs.findIndex((paragraph, index) => index < end && LABEL.test(paragraph));
  return place < 0 ? Math.min(1, end) : place;
}

function caseParts(paragraphs, call, traced) {
  const asks = paragraphs.findLastIndex((paragraph) => paragraph.includes(traced.question.text));
  const context = asks > 0 ? paragraphs.slice(0, asks).join("\n\n") : "";
  const lines = paragraphs.slice(Math.max(asks, 0)).join("\n\n").split("\n");
  const places = [...optionLines(call, lines).values()].map(([, place]) => place);
  const text = (from, to) => lines.slice(from, to).join("\n");
  const before = { name: "context", text: context, open: context.length <= LONG };
  if (!places.length) return [before, { name: "question", text: lines.join("\n"), open: true }];
  const [first, end] = [Math.min(...places), Math.max(...places) + 1];
  return [
    before,
    { name: "question", text: text(0, first), open: true },
    { name: "options", text: text(first, end), open: false }, // shown below with their probabilities
    { name: "after the options", text: text(end), open: true },
  ];
}

/** Maps an option's label to its text and line: the last lines "B. text" of the prompt. */
function optionLines(call, lines) {
  const found = new Map();
  for (const label of call.options ?? []) {
    const place = lines.findLastIndex((line) => line.startsWith(`${label}. `));
    if (place >= 0) found.set(label, [lines[place].slice(label.length + 2), place]);
  }
  return found;
}

/** Maps an option's label to its text. */
function optionTexts(call) {
  const lines = (call.prompt?.messages.at(-1)?.[1] ?? "").split("\n");
  return new Map([...optionLines(call, lines)].map(([label, [text]]) => [label, text]));
}

/** [label, text, log-probability, probability], the likeliest first. */
function optionRows(call) {
  const texts = optionTexts(call);
  return ranked(call.reply.logprobs, call.options).map(([label, logprob]) => [label, texts.get(label) ?? "", logprob, Math.exp(Number(logprob))]);
}

/** Shows the options with their texts, if the prompt has them, and probabilities. */
function optionsView(call) {
  const shown = optionRows(call);
  const hasTexts = shown.some(([, text]) => text);
  const header = ["option", ...(hasTexts ? ["text"] : []), "log-probability", "probability"];
  return [element("p", { class: "role" }, "reply"), grid(header, shown.map(([label, text, logprob, share]) => [label, ...(hasTexts ? [text] : []), logprob, bar(share)]))];
}
