// Refresh what changes while work runs, fold sweeps, hide the token, and move the focus to the search box with "/".

const PERIOD = 2000; // milliseconds between two requests

async function poll(node) {
  const response = await fetch(node.dataset.poll).catch(() => null);
  document.body.classList.toggle("alone", response === null);
  if (!response?.ok) return;
  node.innerHTML = await response.text(); // the server escapes every text
}

for (const node of document.querySelectorAll("[data-poll]")) setInterval(() => void poll(node), PERIOD);

function fold(row, isOpen) {
  row.querySelector(".fold").setAttribute("aria-expanded", isOpen);
  for (let next = row.nextElementSibling; next?.classList.contains("of-sweep"); next = next.nextElementSibling) next.hidden = !isOpen;
}

for (const button of document.querySelectorAll(".fold")) {
  const row = button.closest("tr");
  const folded = `folded ${row.dataset.key}`; // a folded sweep stays folded
  fold(row, localStorage.getItem(folded) === null);
  button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-expanded") !== "true";
    fold(row, isOpen);
    if (isOpen) localStorage.removeItem(folded);
    else localStorage.setItem(folded, "yes");
  });
}

for (const plot of document.querySelectorAll("svg.plot:not(.narrow)")) {
  const link = document.createElement("a"); // saves the figure for a paper
  link.download = `${plot.ariaLabel}.svg`;
  link.href = `data:image/svg+xml,${encodeURIComponent(plot.outerHTML)}`;
  link.textContent = "SVG";
  plot.before(link);
}

// a cookie has the token now
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname);

addEventListener("keydown", (event) => {
  if (event.key !== "/" || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
  event.preventDefault();
  document.querySelector("input[type=search]")?.focus();
});

document.documentElement.dataset.ready = "yes";
