// The ask tab: a question to a folder of documents, told as it is answered; what was asked before.

import { asked, trouble } from "./server.js";
import { Told } from "./told.js";

const KEPT = "kgqa.view.ask";
const byId = (id) => document.getElementById(id);
let source = null; // of events, once the tab was opened
let told = null; // the question that is shown
let choices = null;

export async function showAsk() {
  if (source === null) begin();
  await refresh();
  byId("ask-question").focus();
}

function begin() {
  source = new EventSource("/api/ask/events");
  source.addEventListener("asked", (event) => shown(JSON.parse(event.data)));
  source.addEventListener("told", (event) => take(JSON.parse(event.data)));
  byId("put").addEventListener("submit", (event) => {
    event.preventDefault();
    void put();
  });
  byId("ask-cancel").addEventListener("click", () => void cancel());
  byId("ask-method").addEventListener("change", about);
}

async function refresh() {
  const fresh = await asked("/api/ask");
  const first = choices === null;
  choices = fresh;
  if (first) offerAll(remembered());
  byId("no-documents").hidden = choices.folders.length > 0;
  byId("put").hidden = choices.folders.length === 0;
  byId("earlier").hidden = choices.asked.length === 0;
  byId("earlier-questions").replaceChildren(...choices.asked.map(earlierView));
}

function offerAll(before) {
  offer("ask-documents", choices.folders.map((name) => [name, name]), before.documents);
  offer("ask-method", choices.methods.map(([name]) => [name, name]), before.method ?? choices.method);
  const [best] = choices.models;
  const chosenHere = choices.given ? "as given" : best ? `the best here (${best})` : "the best here";
  offer("ask-model", [["", chosenHere], ...choices.models.map((name) => [name, name])], before.model);
  byId("ask-given").textContent = choices.given;
  byId("ask-given").hidden = !choices.given;
  about();
}

function offer(id, options, wanted) {
  byId(id).replaceChildren(...options.map(([value, name]) => element("option", { value }, name)));
  if (options.some(([value]) => value === wanted)) byId(id).value = wanted;
}

function about() {
  byId("ask-about").textContent = choices.methods.find(([name]) => name === byId("ask-method").value)?.[1] ?? "";
}

const wish = () => ({ question: byId("ask-question").value, documents: byId("ask-documents").value, method: byId("ask-method").value, model: byId("ask-model").value });

async function put() {
  const { question, ...settings } = wish();
  if (!question.trim()) return byId("ask-question").focus();
  localStorage.setItem(KEPT, JSON.stringify(settings));
  try {
    trouble(null);
    await asked("/api/ask", { method: "POST", body: JSON.stringify({ question, ...settings }) });
  } catch (error) {
    trouble(error);
  }
}

async function cancel() {
  byId("ask-cancel").textContent = "cancelling …";
  try {
    await asked("/api/ask/cancel", { method: "POST", body: "" });
  } catch (error) {
    trouble(error);
  }
}

/** A question was put, here or in another window of this browser. */
function shown(question) {
  told = new Told(question);
  byId("telling").replaceChildren(told.node);
  busy(true);
}

function take(event) {
  told.take(event);
  if (!told.ended) return;
  busy(false);
  void refresh().catch(trouble);
}

function busy(now) {
  const held = document.activeElement === byId("ask-cancel");
  byId("ask-put").disabled = now;
  byId("ask-cancel").hidden = !now;
  byId("ask-cancel").textContent = "cancel";
  if (held && !now) byId("ask-question").focus();
}

function earlierView({ name, question, answer, error, says_so: says, method, written, trouble: damage }) {
  if (damage) return element("li", { class: "wrong" }, damage);
  const text = error === null ? answer || "no answer" : `failed: ${error}`;
  const when = new Date(written * 1000).toLocaleString("sv").slice(0, 16);
  return element("li", null, element("a", { href: `/asked/${encodeURIComponent(name)}` }, question), element("span", null, ` ${text} `), error === null && !says && mark("check it", "wrong"), element("span", { class: "hint" }, ` ${method} · ${when}`));
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}
