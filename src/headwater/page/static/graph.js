// The graph: traces a column, goes from column to column by keyboard, zooms and pans. The drawing and every trace
// come from the server; here only classes are set.

const board = document.getElementById("board");
const panel = document.getElementById("panel");
const svg = board.querySelector("svg");
const exportLink = document.getElementById("export");
const rows = [...svg.querySelectorAll("a.row")];
const edges = [...svg.querySelectorAll("path.edge")];
const place = (key, column) => JSON.stringify([key, column || ""]);
const rowAt = new Map(rows.map((row) => [place(row.dataset.key, row.dataset.column), row]));
const cards = new Map([...svg.querySelectorAll("g.card")].map((card) => [card.dataset.key, card]));
const touching = new Map();
const size = svg.viewBox.baseVal;
let scale = 1;
let latest = 0;

for (const edge of edges) {
  const { a, ac, b, bc } = edge.dataset;
  for (const end of [place(a, ac), place(b, bc)]) {
    if (!touching.has(end)) touching.set(end, []);
    touching.get(end).push(edge);
  }
}

// --- traces

function light(found) {
  const columns = new Set(found.columns.map(([key, column]) => place(key, column)));
  const keys = new Set(found.columns.map(([key]) => key));
  const lines = new Set(found.edges.map(([a, ac, b, bc]) => place(a, ac) + place(b, bc)));
  for (const row of rows) row.classList.toggle("lit", columns.has(place(row.dataset.key, row.dataset.column)));
  for (const [key, card] of cards) card.classList.toggle("lit", keys.has(key));
  const lit = [];
  for (const edge of edges) {
    const { a, ac, b, bc } = edge.dataset;
    const isLit = lines.has(place(a, ac) + place(b, bc));
    edge.classList.toggle("lit", isLit);
    if (isLit) lit.push(edge);
  }
  lit.forEach((edge) => edge.parentNode.append(edge)); // above the others
  svg.classList.toggle("traced", columns.size > 0);
}

function address(base, row) {
  const url = new URL(base, location.href);
  if (row) {
    url.searchParams.set("column", row.column);
    url.searchParams.set("of_namespace", row.namespace);
    url.searchParams.set("of_name", row.name);
  }
  return url.pathname + url.search;
}

async function trace(row, { push = true } = {}) {
  const turn = ++latest;
  const answer = await fetch(address(board.dataset.trace, row));
  if (!answer.ok || turn !== latest) return;
  const found = await answer.json();
  light(found);
  panel.classList.toggle("open", row !== null);
  panel.replaceChildren(...new DOMParser().parseFromString(found.panel, "text/html").body.childNodes);
  exportLink.href = address(board.dataset.export, row);
  for (const [name, key] of [["column", "column"], ["of_namespace", "namespace"], ["of_name", "name"]]) {
    const form = document.querySelector(".controls");
    let field = form.elements.namedItem(name);
    if (!row) field?.remove();
    else {
      if (!field) {
        field = document.createElement("input");
        field.type = "hidden";
        field.name = name;
        form.append(field);
      }
      field.value = row[key];
    }
  }
  if (push) history.pushState(null, "", address(board.dataset.page, row));
  const focused = document.activeElement;
  if (svg.contains(focused)) focused.scrollIntoView({ block: "nearest", inline: "nearest" }); // not under the panel
}

// A row is named by its address: other attributes are for the eye, and odd characters are replaced in them.
const named = (row) => wanted(new URL(row.getAttribute("href"), location.href).searchParams);
const wanted = (given) => ({
  column: given.get("column"),
  namespace: given.get("of_namespace") ?? given.get("namespace"),
  name: given.get("of_name") ?? given.get("name"),
});
const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);

svg.addEventListener("click", (event) => {
  if (dragged && event.target.closest("a")) event.preventDefault();
  const row = event.target.closest("a.row");
  if (!row || dragged || !isPlain(event)) return;
  event.preventDefault();
  row.focus({ preventScroll: true });
  trace(named(row));
});
panel.addEventListener("click", (event) => {
  if (event.target.closest("a.close") && isPlain(event)) {
    event.preventDefault();
    trace(null);
  }
});
addEventListener("popstate", () => {
  const row = wanted(new URLSearchParams(location.search));
  trace(row.column ? row : null, { push: false });
});

// --- what is near the pointer or the focus

function near(row, isNear) {
  for (const edge of touching.get(place(row.dataset.key, row.dataset.column)) ?? []) edge.classList.toggle("near", isNear);
}
for (const [begin, end] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  svg.addEventListener(begin, (event) => event.target.closest("a.row") && near(event.target.closest("a.row"), true));
  svg.addEventListener(end, (event) => event.target.closest("a.row") && near(event.target.closest("a.row"), false));
}

// --- keyboard: the board is one stop, from which the arrow keys go on; a stop for each column would be too many

for (const row of rows) row.setAttribute("tabindex", "-1");

function beside(row, step) {
  const own = [...row.closest("g.card").querySelectorAll("a.row")];
  const next = own[own.indexOf(row) + step];
  if (next) return next;
  const all = [...cards.values()];
  for (let at = all.indexOf(row.closest("g.card")) + step; all[at]; at += step) {
    const others = [...all[at].querySelectorAll("a.row")];
    if (others.length) return others[step > 0 ? 0 : others.length - 1];
  }
  return null;
}

function along(row, toRight) {
  const here = place(row.dataset.key, row.dataset.column);
  for (const edge of touching.get(here) ?? []) {
    const { a, ac, b, bc } = edge.dataset;
    const other = toRight && place(a, ac) === here ? place(b, bc) : !toRight && place(b, bc) === here ? place(a, ac) : "";
    if (rowAt.has(other)) return rowAt.get(other);
  }
  return null;
}

board.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const row = event.target.closest("a.row");
  if (event.key === "Escape" && svg.classList.contains("traced")) return void trace(null);
  if (event.key === "+" || event.key === "=") return zoom(scale * 1.25);
  if (event.key === "-") return zoom(scale / 1.25);
  if (event.key === "0") return fit();
  if (!event.key.startsWith("Arrow")) return;
  let next = null;
  if (!row) next = event.target === board ? svg.querySelector("g.card.start a.row") ?? rows[0] : null;
  else if (event.key === "ArrowDown") next = beside(row, 1);
  else if (event.key === "ArrowUp") next = beside(row, -1);
  else next = along(row, event.key === "ArrowRight");
  if (next) {
    event.preventDefault();
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
});

// --- looking around

// What of the board's width the panel leaves free; on a narrow screen it stands below the board.
function room() {
  const covers = panel.classList.contains("open") && getComputedStyle(panel).position === "absolute";
  return board.clientWidth - (covers ? panel.offsetWidth : 0);
}

function zoom(to, x = room() / 2, y = board.clientHeight / 2) {
  const next = Math.min(2, Math.max(0.1, to));
  const left = (board.scrollLeft + x) / scale;
  const top = (board.scrollTop + y) / scale;
  scale = next;
  svg.setAttribute("width", size.width * scale);
  svg.setAttribute("height", size.height * scale);
  board.scrollTo(left * scale - x, top * scale - y);
}

function fit() {
  zoom(Math.min(1, room() / size.width, board.clientHeight / size.height));
}

// The whole trace in the middle, if it fits; else what the page is about.
function center() {
  const frame = board.getBoundingClientRect();
  const start = svg.querySelector("g.card.start")?.getBoundingClientRect();
  const lit = [...svg.querySelectorAll("g.card.lit")].map((card) => card.getBoundingClientRect());
  const left = Math.min(...lit.map((card) => card.left));
  const right = Math.max(...lit.map((card) => card.right));
  const traced = lit.length > 1 && right - left < room();
  const middle = traced ? (left + right) / 2 : start && start.left + start.width / 2;
  const across = start ?? lit[0];
  if (!across) return;
  board.scrollBy(
    middle - frame.left - room() / 2,
    across.top - frame.top - Math.max(16, (frame.height - across.height) / 2),
  );
}

let grip = null;
let dragged = false;
board.addEventListener("pointerdown", (event) => {
  dragged = false;
  if (event.pointerType === "mouse" && event.button === 0) {
    grip = { x: event.clientX, y: event.clientY, left: board.scrollLeft, top: board.scrollTop };
  }
});
board.addEventListener("pointermove", (event) => {
  if (!grip) return;
  const [x, y] = [event.clientX - grip.x, event.clientY - grip.y];
  if (!dragged && Math.hypot(x, y) < 5) return;
  dragged = true;
  board.classList.add("dragged");
  board.scrollTo(grip.left - x, grip.top - y);
});
addEventListener("pointerup", () => {
  grip = null;
  board.classList.remove("dragged");
});
board.addEventListener("dragstart", (event) => event.preventDefault());
board.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // plain wheels scroll
    event.preventDefault();
    const frame = board.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  },
  { passive: false },
);

document.getElementById("in").addEventListener("click", () => zoom(scale * 1.25));
document.getElementById("out").addEventListener("click", () => zoom(scale / 1.25));
document.getElementById("fit").addEventListener("click", fit);
const indirect = document.getElementById("indirect");
indirect.addEventListener("change", () => svg.classList.toggle("direct-only", !indirect.checked));

// As large as it can be read; a graph that does not fill the board stands in its middle, and stays there.
const whole = Math.min(room() / size.width, board.clientHeight / size.height);
if (whole < 1) zoom(Math.max(whole, board.clientWidth < 700 ? 0.85 : 0.7));
svg.style.marginLeft = `${Math.max(0, (room() - size.width * scale) / 2)}px`;
center();
board.dataset.ready = "yes";
