// The live tail. Every text of an event is put in as text, never as markup.

const list = document.getElementById("tail");
const state = document.getElementById("tail-state");
const filter = document.getElementById("filter");
const pause = document.getElementById("pause");
const KEPT = 300;
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

function row(arrival) {
  const item = document.createElement("li");
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const time = part("time", "", new Date(arrival.at * 1000).toISOString().slice(11, 23));
  summary.append(time, part("span", "tag", arrival.source), part("b", "", arrival.title), part("small", "", arrival.note));
  details.append(summary, part("pre", "", arrival.body));
  item.append(details);
  item.dataset.text = `${arrival.source} ${arrival.title} ${arrival.note} ${arrival.body}`.toLowerCase();
  item.hidden = !matches(item);
  return item;
}

const matches = (item) => item.dataset.text.includes(filter.value.trim().toLowerCase());

function tell() {
  const gone = missed ? `, ${missed.toLocaleString("en")} passed too fast to be shown` : "";
  const held = waiting.length ? `, ${waiting.length.toLocaleString("en")} held back` : "";
  state.textContent = seen ? `${seen.toLocaleString("en")} events${held}${gone}` : "waiting for events";
}

function show(arrivals) {
  list.prepend(...arrivals.map(row).reverse());
  while (list.children.length > KEPT) list.lastElementChild.remove();
}

function open() {
  if (source) return;
  source = new EventSource(list.dataset.address);
  source.addEventListener("arrivals", (event) => {
    const arrivals = JSON.parse(event.data);
    seen += arrivals.length;
    if (isPaused()) waiting = waiting.concat(arrivals).slice(-KEPT);
    else show(arrivals);
    tell();
  });
  source.addEventListener("missed", (event) => {
    missed += Number(event.data);
    tell();
  });
  source.addEventListener("error", () => (state.textContent = "the server does not answer; trying again"));
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
    tell();
  }
});
document.getElementById("clear").addEventListener("click", () => list.replaceChildren());
filter.addEventListener("input", () => {
  for (const item of list.children) item.hidden = !matches(item);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return close();
  list.replaceChildren(); // the server begins with the last ones again
  open();
});
addEventListener("pagehide", close);
open();
