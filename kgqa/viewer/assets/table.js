// The table of runs and sweeps: columns to choose, filter, groups, order, choice. Only rows in sight are in the page.

import { columnsOf, differing, matcher, order, SHOWN } from "./columns.js";
import { runAddress } from "./server.js";
import { InSight } from "./sight.js";

const ROW = 34; // pixels, as in the style sheet
const FITS = 1.6; // letters that a column has room for in each rem
const KEPT = "kgqa.view.columns";
const byId = (id) => document.getElementById(id);

export class Table {
  rows = new Map(); // by key
  chosen = new Set();
  #columns = new Map();
  #shown = remembered();
  #sort = { id: "written", down: true };
  #lines = []; // rows and heads of groups, in their order
  #current = null; // key of the row that keys act on
  #wanted = []; // columns that are shown

  constructor(changed) {
    this.changed = changed; // told when the choice changes
    this.frame = byId("table");
    [this.above, this.below] = [gap(), gap()];
    this.body = element("tbody", null, this.above, this.below);
    this.sight = new InSight(this.frame, this.body, this.below);
    this.head = element("thead", null);
    this.widths = element("colgroup", null);
    this.table = element("table", { class: "runs" }, element("caption", { class: "unseen" }, "Runs and sweeps"), this.widths, this.head, this.body);
    this.frame.replaceChildren(this.table);
    this.frame.addEventListener("scroll", () => this.draw());
    this.body.addEventListener("change", ({ target }) => this.choose(target.closest("tr").dataset.key, target.checked));
    this.body.addEventListener("focusin", ({ target }) => this.#goTo(target.closest("tr").dataset.key, false));
    new ResizeObserver(() => this.draw()).observe(this.frame);
    byId("filter").addEventListener("input", () => this.arrange(true));
    byId("group").addEventListener("change", () => this.arrange(true));
    byId("tools").addEventListener("submit", (event) => event.preventDefault());
  }

  take(rows, gone = []) {
    for (const row of rows) this.rows.set(row.key, row);
    for (const key of gone) {
      this.rows.delete(key);
      this.chosen.delete(key);
    }
    const sweeps = new Map();
    for (const row of this.rows.values()) for (const key of row.runs ?? []) sweeps.set(key, [...(sweeps.get(key) ?? []), row.name]);
    for (const row of this.rows.values()) {
      row.sweeps = row.kind === "sweep" ? [row.name] : (sweeps.get(row.key) ?? []);
      row.searched = [row.key, row.status, ...row.tags, ...row.sweeps, ...Object.values(row.settings ?? {})].join("\n").toLowerCase();
    }
    this.#columns = columnsOf([...this.rows.values()]);
    this.#offer();
    this.arrange(false);
  }

  /** Filters, groups and sorts anew. */
  arrange(above) {
    const passes = matcher(byId("filter").value, this.#columns);
    const column = this.#columns.get(this.#sort.id) ?? this.#columns.get("written");
    const turn = this.#sort.down ? -1 : 1;
    const rows = [...this.rows.values()].filter(passes).sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return x === null || y === null ? order(x, y) : turn * order(x, y);
    });
    this.visible = rows;
    this.#lines = this.#grouped(rows, byId("group").value);
    byId("shown").textContent = `${rows.length} of ${this.rows.size}`;
    byId("count").textContent = this.rows.size;
    if (above) this.frame.scrollTop = 0;
    this.#wanted = this.#columnsWanted();
    this.empty = this.#emptyRow();
    this.#drawHead();
    const focused = this.body.contains(document.activeElement) ? document.activeElement.type : null;
    this.sight.clear();
    this.table.setAttribute("aria-rowcount", this.#lines.length + 1);
    this.draw();
    if (focused !== null) this.#focus(focused === "checkbox" ? "input" : "a, span");
  }

  #grouped(rows, id) {
    if (!id) return rows.map((row) => ({ row }));
    const groups = new Map();
    const column = this.#columns.get(id);
    for (const row of rows) {
      const values = id === "tags" || id === "sweeps" ? row[id] : [column?.text(row) ?? ""];
      for (const value of values.length ? values : [""]) groups.set(value, [...(groups.get(value) ?? []), row]);
    }
    const named = [...groups].sort(([a], [b]) => order(a || null, b || null));
    return named.flatMap(([value, members]) => [{ group: `${id}: ${value || "none"}`, count: members.length }, ...members.map((row) => ({ row }))]);
  }

  #columnsWanted() {
    return [...this.#columns.values()].filter(({ id }) => this.#shown.includes(id)).sort((a, b) => this.#shown.indexOf(a.id) - this.#shown.indexOf(b.id))
      .filter(({ kind, value }) => kind !== "figure" || [...this.rows.values()].some((row) => value(row) !== null));
  }

  #drawHead() {
    const columns = this.#wanted;
    this.widths.replaceChildren(element("col", { class: "pick" }), ...columns.map(({ width }) => {
      const col = element("col", null);
      col.style.width = `${width}rem`;
      return col;
    }));
    this.table.style.minWidth = `${columns.reduce((sum, { width }) => sum + width, 2.2)}rem`;
    const heads = columns.map(({ id, kind }) => {
      const button = element("button", { type: "button", title: `sort by ${id}` }, id);
      button.addEventListener("click", () => this.sortBy(id, kind));
      const head = element("th", { scope: "col", class: id === "questions" ? id : kind }, button);
      if (id === this.#sort.id) head.setAttribute("aria-sort", this.#sort.down ? "descending" : "ascending");
      return head;
    });
    const focused = this.head.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.head.replaceChildren(element("tr", null, element("td", { class: "pick" }), heads));
    if (focused !== null) [...this.head.querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
  }

  sortBy(id, kind) {
    const first = kind === "figure" || id === "written";
    this.#sort = { id, down: id === this.#sort.id ? !this.#sort.down : first };
    this.arrange(true);
  }

  /** The rows in sight, and an empty one above and below as high as all the others. */
  draw() {
    const row = (line) => (line.row ? this.#rowView(line.row) : groupView(line, this.#wanted.length + 1));
    if (!this.sight.draw(this.#lines.length, ROW, (place) => row(this.#lines[place]))) return;
    this.above.style.height = `${this.sight.top * ROW}px`;
    this.below.style.height = `${(this.#lines.length - this.sight.bottom) * ROW}px`;
  }

  /** A line without its row's texts: copying one is cheaper than making its cells. */
  #emptyRow() {
    const pick = element("td", { class: "pick" }, element("input", { type: "checkbox" }));
    const cells = this.#wanted.map(({ id, kind }) => (id === "name" ? element("th", { class: kind, scope: "row" }) : element("td", { class: id === "questions" ? `${kind} questions` : kind })));
    return element("tr", null, pick, cells);
  }

  #rowView(row) {
    const line = this.empty.cloneNode(true);
    const [pick, ...cells] = line.cells;
    const box = pick.firstChild;
    box.setAttribute("aria-label", `choose ${row.key}`);
    box.checked = this.chosen.has(row.key);
    for (const [place, { id, text, width }] of this.#wanted.entries()) {
      const [cell, said] = [cells[place], text(row)];
      if (id === "name") cell.append(...[nameView(row)].flat().filter(Boolean));
      else if (id === "tags") cell.append(...row.tags.map((tag) => mark(tag)));
      else if (said) cell.textContent = said;
      if (said.length > FITS * width || (id === "tags" && said)) {
        cell.title = said;
        cell.classList.add("long"); // only these are cut: a clip for each cell costs as much as its layout
      }
      if (id === "status") cell.classList.add(row.status.replace(" ", "-"));
    }
    line.className = `${row.kind} ${this.chosen.has(row.key) ? "picked" : ""}`;
    line.dataset.key = row.key;
    if (row.key === this.#current) line.setAttribute("aria-current", "true");
    return line;
  }

  choose(key, wanted) {
    if (wanted) this.chosen.add(key);
    else this.chosen.delete(key);
    for (const line of this.body.querySelectorAll("tr[data-key]")) {
      line.classList.toggle("picked", this.chosen.has(line.dataset.key));
      line.querySelector("input").checked = this.chosen.has(line.dataset.key);
    }
    this.changed();
  }

  chooseNone() {
    for (const key of [...this.chosen]) this.choose(key, false);
  }

  pickCurrent() {
    if (this.#current !== null) this.choose(this.#current, !this.chosen.has(this.#current));
  }

  step(by) {
    const rows = this.#lines.map((line, place) => [line.row?.key, place]).filter(([key]) => key !== undefined);
    const at = rows.findIndex(([key]) => key === this.#current);
    const next = rows[at < 0 ? 0 : at + by];
    if (!next) return;
    const top = next[1] * ROW;
    const high = this.frame.clientHeight - this.head.offsetHeight;
    if (top < this.frame.scrollTop || top + ROW > this.frame.scrollTop + high) this.frame.scrollTop = Math.max(0, top - high / 2);
    this.draw();
    this.#goTo(next[0], true);
  }

  #goTo(key, focus) {
    this.#current = key;
    for (const line of this.body.querySelectorAll("tr[data-key]")) line.toggleAttribute("aria-current", line.dataset.key === key);
    for (const line of this.body.querySelectorAll("[aria-current]")) line.setAttribute("aria-current", "true");
    if (focus) this.#focus("a, .unopened");
  }

  #focus(what) {
    [...this.body.querySelectorAll("tr[data-key]")].find((line) => line.dataset.key === this.#current)?.querySelector(what)?.focus({ preventScroll: true });
  }

  #offer() {
    const group = byId("group");
    const differ = differing([...this.rows.values()].filter((row) => row.kind === "run"));
    const ids = ["", "dataset", "method", "model", "sweeps", "tags", "status", ...differ.filter((id) => !["dataset", "method", "model"].includes(id))];
    const before = group.value;
    group.replaceChildren(...ids.map((id) => element("option", { value: id }, id || "nothing")));
    group.value = ids.includes(before) ? before : "";
    const open = byId("columns").contains(document.activeElement);
    if (open) return; // not under somebody's hands
    const ofKind = (kind) => [...this.#columns.values()].filter((column) => column.kind === kind);
    const [same, other] = [ofKind("setting").filter(({ id }) => !differ.includes(id)), ofKind("setting").filter(({ id }) => differ.includes(id))];
    const parts = [["Run", ofKind("field")], ["Scores and costs", ofKind("figure")], ["Settings that differ", other], ["Settings that are the same", same]];
    byId("columns").replaceChildren(...parts.filter(([, columns]) => columns.length).map(([name, columns]) => element("fieldset", null, element("legend", null, name), columns.map(({ id }) => this.#boxOf(id)))));
  }

  #boxOf(id) {
    const box = element("input", { type: "checkbox" });
    box.checked = this.#shown.includes(id);
    box.addEventListener("change", () => {
      this.#shown = box.checked ? [...this.#shown, id] : this.#shown.filter((each) => each !== id);
      localStorage.setItem(KEPT, JSON.stringify(this.#shown));
      this.arrange(false);
    });
    return element("label", null, box, ` ${id}`);
  }
}

function nameView(row) {
  const sign = row.trouble ? element("span", { class: "wrong", title: row.trouble, role: "img", "aria-label": "damaged" }, "! ") : null;
  if (row.kind === "sweep") return [sign, element("a", { href: `#plots=${encodeURIComponent(row.key)}`, title: row.trouble ?? row.key }, `sweep ${row.name}`)];
  if (row.status === "done" && !row.trouble) return element("a", { href: runAddress(row.key), title: row.key }, row.name);
  return [sign, element("span", { class: "unopened", tabindex: "-1", title: row.trouble ?? row.key }, row.name)];
}

function groupView({ group, count }, columns) {
  return element("tr", { class: "group" }, element("th", { colspan: columns, scope: "rowgroup" }, `${group} · ${count}`));
}

const gap = () => element("tr", { class: "gap", "aria-hidden": "true" }, element("td", null));

function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT));
    return Array.isArray(kept) ? kept : SHOWN;
  } catch {
    return SHOWN;
  }
}
