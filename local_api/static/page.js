// Keeps the page as it would be if it were loaded now: the server renders it, and what has changed of it
// replaces what is there. So there is one way to draw a row, and the page is whole without this script.
"use strict";

const SECTIONS = ["verdict", "alarms", "peers", "logs-rows", "transfers", "events"];
const REFRESH_MS = 1000;
const RETRY_MS = 3000;
let token = sessionStorage.getItem("token");
let due = null;
const reasons = new Map();

function headers() {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function keyOf(row) {
  return row.dataset.log ? `log=${row.dataset.log}` : `peer=${row.dataset.peer}`;
}

async function refresh() {
  const answer = await fetch("/", { headers: headers() });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (fresh.getElementById("token")) return askForToken();
  document.getElementById("token")?.remove();
  for (const id of SECTIONS) {
    const before = document.getElementById(id);
    const after = fresh.getElementById(id);
    if (!before || !after) continue;
    for (const row of after.querySelectorAll("details")) {
      const known = reasons.get(keyOf(row));
      if (known) {
        row.open = true;
        row.querySelector(".why").replaceChildren(...known.map((node) => node.cloneNode(true)));
      }
    }
    if (before.outerHTML === after.outerHTML) continue;
    const focused = before.contains(document.activeElement) ? document.activeElement.closest("details") : null;
    before.replaceWith(after);
    if (focused) {
      const key = keyOf(focused);
      [...after.querySelectorAll("details")].find((row) => keyOf(row) === key)?.querySelector("summary").focus();
    }
  }
  search();
}

function soon() {
  due ??= setTimeout(() => {
    due = null;
    refresh();
  }, REFRESH_MS);
}

async function why(row) {
  const key = keyOf(row);
  if (!row.open) {
    reasons.delete(key);
    return;
  }
  const split = key.indexOf("=") + 1;
  const query = key.slice(0, split) + encodeURIComponent(key.slice(split));
  const answer = await fetch(`/v1/why?${query}`, { headers: headers() });
  const lines = (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const items = lines.map((line) => {
    const item = document.createElement("li");
    item.textContent = line.error ?? (line.advice ? `${line.text}: ${line.advice}` : line.text);
    if (line.wrong) item.className = "state-bad";
    return item;
  });
  reasons.set(key, items);
  row.querySelector(".why").replaceChildren(...items.map((node) => node.cloneNode(true)));
}

function search() {
  const wanted = document.getElementById("search").value.trim().toLowerCase();
  for (const row of document.querySelectorAll("#logs-rows > [data-log]")) {
    row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted)
      && !row.dataset.log.startsWith(wanted);
  }
}

function askForToken() {
  const form = document.getElementById("token");
  if (!form) return location.reload();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token = new FormData(form).get("token").trim();
    sessionStorage.setItem("token", token);
    location.hash = "";
    start();
  }, { once: true });
}

async function listen() {
  // Not EventSource, which can send no token.
  for (;;) {
    try {
      const answer = await fetch("/v1/events", { headers: headers() });
      if (!answer.ok) throw new Error(answer.statusText);
      document.body.dataset.live = "yes";
      const reader = answer.body.getReader();
      for (;;) {
        const { done } = await reader.read();
        if (done) break;
        soon();
      }
    } catch {
      // The node may be gone for a while; then the verdict is of the last time that it was there.
    }
    document.body.dataset.live = "no";
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    refresh().catch(() => {});
  }
}

async function start() {
  await refresh();
  if (!document.getElementById("token")) listen();
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details[data-log], details[data-peer]")) why(event.target);
}, true);
document.addEventListener("input", (event) => {
  if (event.target.id === "search") search();
});
if (document.getElementById("token") && !token) askForToken();
else start();
