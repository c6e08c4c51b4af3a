// Refresh what changes while work runs, hide the token, and move the focus to the search box with "/".

const PERIOD = 2000; // milliseconds between two requests

async function poll(node) {
  const response = await fetch(node.dataset.poll).catch(() => null);
  document.body.classList.toggle("alone", response === null);
  if (!response?.ok) return;
  node.innerHTML = await response.text(); // the server escapes every text
  if (node.querySelector("[data-reload]")) location.reload();
}

for (const node of document.querySelectorAll("[data-poll]")) setInterval(() => void poll(node), PERIOD);

// a cookie has the token now
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname);

addEventListener("keydown", (event) => {
  if (event.key !== "/" || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
  event.preventDefault();
  document.querySelector("input[type=search], input[name=question]")?.focus();
});

document.documentElement.dataset.ready = "yes";
