// Refresh what changes while work runs, fold sweeps, count ticks, hide the token, and move the focus: to the search box with "/", to runs with j and k.

const PERIOD = 2000; // milliseconds between two requests

async function poll(node) {
  const response = await fetch(node.dataset.poll).catch(() => null);
  document.body.classList.toggle("alone", response === null);
  if (!response?.ok) return;
  node.innerHTML = await response.text(); // the server escapes every text
}

for (const node of document.querySelectorAll("[data-poll]")) setInterval(() => void poll(node), PERIOD);

/** Returns whether the rows below a sweep or a mean are shown. Repeats are folded until a click. */
function isOpen(row) {
  const stored = localStorage.getItem(`folded ${row.dataset.key}`);
  return row.classList.contains("mean") ? stored === "no" : stored !== "yes";
}

function foldRows() {
  let [sweep, mean] = [true, true];
  for (const row of document.querySelectorAll(".runs tbody tr")) {
    const isCell = row.classList.contains("of-sweep");
    const isRepeat = row.classList.contains("of-mean");
    row.hidden = (isCell && !sweep) || (isRepeat && !mean);
    const button = row.querySelector(".fold");
    if (!isRepeat) mean = button === null || isOpen(row);
    if (!isCell) sweep = mean;
    button?.setAttribute("aria-expanded", isOpen(row));
  }
}

for (const button of document.querySelectorAll(".fold")) {
  const row = button.closest("tr");
  button.addEventListener("click", () => {
    localStorage.setItem(`folded ${row.dataset.key}`, isOpen(row) ? "yes" : "no"); // stays so in later visits
    foldRows();
  });
}
foldRows();

/** Allows "side by side" for two runs or more, but not for too many. A ticked sweep adds its finished cells. */
function allowComparison() {
  const rows = [...document.querySelectorAll("#runs input:checked")].map((box) => box.closest("tr").dataset);
  const count = new Set(rows.flatMap((row) => (row.cells ? JSON.parse(row.cells) : [row.key]))).size;
  for (const button of document.querySelectorAll("#runs [formaction='/compare']")) button.disabled = count < 2 || count > button.dataset.most;
}

document.getElementById("runs")?.addEventListener("change", allowComparison);
addEventListener("pageshow", allowComparison); // also after "back", which keeps the ticks

for (const plot of document.querySelectorAll("svg.plot:not(.narrow)")) {
  const link = document.createElement("a"); // saves the figure for a paper
  link.download = `${plot.ariaLabel}.svg`;
  link.href = `data:image/svg+xml,${encodeURIComponent(plot.outerHTML)}`;
  link.textContent = "SVG";
  plot.before(link);
}

// a cookie has the token now
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname);

/** Moves the focus to the name of the next or previous run. Enter opens it. */
function step(by) {
  const names = [...document.querySelectorAll("#runs tbody tr:not([hidden]) th > a")];
  const place = names.indexOf(document.activeElement);
  names[place < 0 ? 0 : place + by]?.focus();
}

addEventListener("keydown", (event) => {
  const isTyping = ["search", "select-one"].includes(event.target.type);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  if (event.key !== "/") return;
  event.preventDefault();
  document.querySelector("input[type=search]")?.focus();
});

document.documentElement.dataset.ready = "yes";
