// Which question each cell of a sweep has right; a press on a sign opens the question in the cell's own report.

const SIGNS = { r: ["✓", "right"], w: ["✗", "wrong"], f: ["!", "failed"], "-": ["·", "not scored"] };
const CHOSEN = {
  "all questions": () => true,
  "cells differ": (letters) => new Set(letters).size > 1,
  "no cell is right": (letters) => !letters.includes("r"),
  "some cell failed": (letters) => letters.includes("f"),
};
const STEP = 100; // rows that are drawn at a time

async function drawMatrix(place) {
  const { cells, questions } = await unpacked(place.querySelector("script").textContent);
  const choice = element("select", { "aria-label": "Questions to list" }, Object.keys(CHOSEN).map((name) => element("option", null, name)));
  const count = element("output", { "aria-live": "polite" });
  const heads = cells.map(([number, name, link]) => element("th", { scope: "col" }, element("a", { href: link, title: name, "aria-label": `cell ${number}: ${name}` }, number)));
  const body = element("tbody");
  const more = element("button", { type: "button" }, "more questions");
  let shown = [];

  function fill(from) {
    if (from === 0) body.replaceChildren();
    body.append(...shown.slice(from, from + STEP).map((question) => matrixRow(question, cells)));
    more.hidden = body.rows.length >= shown.length;
  }
  function choose() {
    shown = questions.filter(([, , letters]) => CHOSEN[choice.value](letters));
    count.textContent = `${shown.length} of ${questions.length} questions`;
    fill(0);
  }

  choice.addEventListener("input", choose);
  more.addEventListener("click", () => fill(body.rows.length));
  const table = element("table", null, element("thead", null, element("tr", null, element("th", { scope: "col" }, "question"), heads)), body);
  place.append(element("h3", null, "Questions by cells"), element("p", { class: "chosen" }, choice, count), element("div", { class: "wide" }, table), more);
  choose();
}

function matrixRow([id, text, letters], cells) {
  const signs = cells.map(([number, name, link], place) => {
    const [sign, said] = SIGNS[letters[place]];
    const about = { href: `${link}#q=${encodeURIComponent(id.toWellFormed())}`, class: said, title: `${said}: cell ${number}, ${name}`, "aria-label": `cell ${number}: ${said}` };
    return element("td", null, element("a", about, sign));
  });
  return element("tr", null, element("th", { scope: "row", title: id }, text), signs);
}

for (const place of document.querySelectorAll(".matrix")) {
  drawMatrix(place).catch((error) => place.append(element("p", { class: "alarm" }, `The questions cannot be listed (${error.message}); a browser of 2024 or later can.`)));
}
