// Tables are sorted by a click on the head of a column. Plots have a choice of scores. Commands have a button that copies them.
"use strict";

/** Returns an element with attributes and children. Strings become text nodes. Null and false are skipped. */
function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== false && child !== undefined));
  return node;
}

function sortable(table) {
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const name = head.textContent;
    if (!name) continue;
    head.replaceChildren(element("button", { type: "button", title: `sort by ${name}` }, name));
    head.firstChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const lines = [...table.tBodies[0].rows].sort((a, b) => compared(a.cells[column].textContent, b.cells[column].textContent));
      table.tBodies[0].append(...(down ? lines.reverse() : lines));
    });
  }
}

function compared(left, right) {
  const [a, b] = [left, right].map((text) => parseFloat(text.replaceAll(",", "")));
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || left.localeCompare(right);
  return a - b;
}

/** Returns a button that copies the result of `text()`. */
function copying(name, text, title = name) {
  const button = element("button", { type: "button", class: "small", title, "aria-label": title }, name);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "copied";
    } catch {
      button.textContent = "the browser allows no copy";
    }
    setTimeout(() => (button.textContent = name), 1500);
  });
  return button;
}

/** Shows the plots of one score, below a choice of the others. */
function offerChoice(plots) {
  const figures = [...plots.querySelectorAll("[data-choice]")];
  const names = [...new Set(figures.map((figure) => figure.dataset.choice))];
  if (names.length < 2) return;
  const select = element("select", null, names.map((name) => element("option", null, name)));
  const show = () => {
    for (const figure of figures) figure.hidden = figure.dataset.choice !== select.value;
  };
  select.addEventListener("input", show);
  plots.before(element("label", { class: "choice" }, "score of the plots ", select));
  show();
}

for (const plots of document.querySelectorAll(".plots")) offerChoice(plots);
for (const table of document.querySelectorAll("main table")) if (table.tHead) sortable(table);
// a figure can be saved for a paper
for (const plot of document.querySelectorAll("figure svg:not(.narrow)")) plot.before(" ", element("a", { download: `${plot.ariaLabel}.svg`, href: `data:image/svg+xml,${encodeURIComponent(plot.outerHTML)}` }, "SVG"));
for (const code of document.querySelectorAll("[data-copied]")) code.after(" ", copying("copy", () => code.textContent, "copy the command"));
