// Who is at work now, as the server tells it.

import { trouble } from "./server.js";

export function watch(changed) {
  const source = new EventSource("/api/live");
  source.addEventListener("work", (event) => show(JSON.parse(event.data)));
  source.addEventListener("rows", (event) => changed(JSON.parse(event.data)));
  source.addEventListener("trouble", (event) => trouble(JSON.parse(event.data)));
  source.addEventListener("open", () => document.body.classList.remove("alone"));
  source.addEventListener("error", () => document.body.classList.add("alone"));
}

function show(claims) {
  const section = document.getElementById("work");
  section.hidden = claims.length === 0;
  section.replaceChildren(...claims.map(claimView));
}

function claimView(claim) {
  const known = claim.stage && claim.count !== null;
  const bar = element("progress", { "aria-label": `${claim.what} ${claim.folder}` });
  if (known) [bar.max, bar.value] = [claim.count || 1, claim.ended];
  const done = claim.stage && `${claim.stage} ${claim.ended.toLocaleString("en")}${claim.count === null ? "" : ` of ${claim.count.toLocaleString("en")}`}`;
  const figures = [
    done,
    claim.failed ? `${claim.failed} failed` : null,
    claim.per_minute === null ? null : `${claim.per_minute.toFixed(1)} a minute`,
    claim.tokens_per_second === null ? null : `${Math.round(claim.tokens_per_second)} tokens/s`,
    claim.seconds_left === null ? null : `${duration(claim.seconds_left)} left`,
    claim.usd === null ? null : `${claim.usd.toFixed(4)} USD`,
  ].filter(Boolean);
  const state = claim.told === "working" ? null : mark(claim.told, claim.state === "dead" ? "wrong" : "gold");
  return element("div", { class: `claim ${claim.state}`, title: claim.command },
    element("b", null, `${claim.what} `), element("span", null, claim.folder), claim.state === "dead" ? null : bar, element("span", { class: "under" }, figures.join(" · ")), state);
}

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}
