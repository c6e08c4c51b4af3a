// The viewer's first page: which view is shown, what is chosen, keys.

import { showAsk } from "./ask.js";
import { showCompare } from "./compare.js";
import { watch } from "./live.js";
import { showPlots } from "./plots.js";
import { asked, pages, trouble } from "./server.js";
import { Table } from "./table.js";

const VIEWS = ["runs", "compare", "plots", "ask"];
const byId = (id) => document.getElementById(id);
const table = new Table(noteChoice);

function noteChoice() {
  const keys = [...table.chosen];
  const runs = keys.filter((key) => table.rows.get(key)?.kind === "run");
  byId("chosen").hidden = keys.length === 0;
  byId("how-many").textContent = `${keys.length} chosen`;
  byId("compare-chosen").disabled = runs.length < 2 || runs.length > 6;
  byId("known-tags").replaceChildren(...[...new Set([...table.rows.values()].flatMap((row) => row.tags))].map((value) => element("option", { value })));
}

const listed = (keys) => keys.map(encodeURIComponent).join("&");
const chosenRuns = () => [...table.chosen].filter((key) => table.rows.get(key)?.kind === "run");

async function tag(add, remove) {
  try {
    trouble(null);
    const tags = await asked("/api/tags", { method: "POST", body: JSON.stringify({ runs: [...table.chosen], add, remove }) });
    table.take([...table.rows.values()].map((row) => ({ ...row, tags: tags[row.key] ?? [] })));
    byId("tag").value = "";
    noteChoice();
  } catch (error) {
    trouble(error);
  }
}

function navigate() {
  const [, name, rest] = /^#(\w+)(?:=(.*))?$/.exec(location.hash) ?? [];
  const view = VIEWS.includes(name) ? name : "runs";
  for (const each of VIEWS) {
    byId(each).hidden = each !== view;
    byId(`to-${each}`).toggleAttribute("aria-current", each === view);
    if (each === view) byId(`to-${each}`).setAttribute("aria-current", "page");
  }
  const keys = (rest ?? "").split("&").filter(Boolean).map(decodeURIComponent);
  document.title = `kgqa: ${view === "compare" ? "side by side" : view}`;
  if (view === "runs") table.draw();
  if (view === "compare") void showCompare(byId("compare"), table, keys).catch(trouble);
  if (view === "plots") showPlots(byId("plots"), table, keys);
  if (view === "ask") void showAsk().catch(trouble);
}

function pressed(event) {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "checkbox";
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (byId("choose").open) byId("choose").open = false;
    else location.hash = "#runs";
    return;
  }
  if (!typing && event.key === "/" && !byId("ask").hidden) {
    event.preventDefault();
    byId("ask-question").focus();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || byId("runs").hidden) return;
  const actions = {
    j: () => table.step(1),
    ArrowDown: () => table.step(1),
    k: () => table.step(-1),
    ArrowUp: () => table.step(-1),
    x: () => table.pickCurrent(),
    "/": () => byId("filter").focus(),
    c: () => byId("compare-chosen").disabled || byId("chosen").hidden || byId("compare-chosen").click(),
    t: () => byId("chosen").hidden || byId("tag").focus(),
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}

async function start() {
  if (location.search.includes("token=")) history.replaceState(null, "", location.pathname + location.hash); // a cookie holds it now
  byId("theme").addEventListener("click", switchTheme);
  byId("compare-chosen").addEventListener("click", () => (location.hash = `#compare=${listed(chosenRuns())}`));
  byId("plot-chosen").addEventListener("click", () => (location.hash = `#plots=${listed([...table.chosen])}`));
  byId("none").addEventListener("click", () => table.chooseNone());
  byId("remove-tag").addEventListener("click", () => void tag([], [byId("tag").value]));
  byId("chosen").addEventListener("submit", (event) => {
    event.preventDefault();
    void tag([byId("tag").value], []);
  });
  addEventListener("keydown", pressed);
  addEventListener("hashchange", navigate);
  for await (const rows of pages("/api/runs", 60, 300)) {
    table.take(rows);
    document.documentElement.dataset.ready ??= "some";
  }
  watch(({ rows, gone }) => table.take(rows, gone));
  navigate();
  document.documentElement.dataset.ready = "yes";
}

start().catch(trouble);
