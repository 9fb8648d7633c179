// Events as they arrive. Every text of an event is inserted as text, never as markup.

const list = document.getElementById("events");
const state = document.getElementById("events-state");
const filter = document.getElementById("filter");
const pause = document.getElementById("pause");
const MAX_ROWS = 300;
const MAX_KEYS = 5000; // of the latest events, which the server sends again after a pause
const keys = new Set();
let seen = 0;
let missed = 0;
let waiting = [];
let source = null;

const isPaused = () => pause.getAttribute("aria-pressed") === "true";
const part = (name, className, text) => {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
};

function row(tailed) {
  const item = document.createElement("li");
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const time = part("time", "", new Date(tailed.at * 1000).toISOString().slice(11, 24));
  summary.append(time, part("span", "tag", tailed.source), part("b", "", tailed.title), part("small", "", tailed.note));
  details.append(summary, part("pre", "", tailed.body));
  item.append(details);
  item.dataset.text = `${tailed.source} ${tailed.title} ${tailed.note} ${tailed.body}`.toLowerCase();
  item.hidden = !matches(item);
  return item;
}

const matches = (item) => item.dataset.text.includes(filter.value.trim().toLowerCase());

function showCount() {
  const skipped = missed ? `, ${missed.toLocaleString("en")} skipped` : "";
  const held = waiting.length ? `, ${waiting.length.toLocaleString("en")} paused` : "";
  state.textContent = seen ? `${seen.toLocaleString("en")} events${held}${skipped}` : "waiting for events";
}

function show(events) {
  list.prepend(...events.map(row).reverse());
  while (list.children.length > MAX_ROWS) list.lastElementChild.remove();
}

function open() {
  if (source) return;
  source = new EventSource(list.dataset.address);
  source.addEventListener("events", (event) => {
    const events = JSON.parse(event.data).filter((tailed) => !keys.has(tailed.key));
    for (const tailed of events) keys.add(tailed.key);
    for (const key of keys) {
      if (keys.size <= MAX_KEYS) break;
      keys.delete(key);
    }
    seen += events.length;
    if (isPaused()) waiting = waiting.concat(events).slice(-MAX_ROWS);
    else show(events);
    showCount();
  });
  source.addEventListener("missed", (event) => {
    missed += Number(event.data);
    showCount();
  });
  source.addEventListener("error", () => (state.textContent = "disconnected; retrying"));
}

function close() {
  source?.close();
  source = null;
}

pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(!isPaused()));
  if (!isPaused()) {
    show(waiting);
    waiting = [];
    showCount();
  }
});
document.getElementById("clear").addEventListener("click", () => list.replaceChildren());
filter.addEventListener("input", () => {
  for (const item of list.children) item.hidden = !matches(item);
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
open();
