// Traces a column. The server computes the trace; this script marks rows and lines, and shows the panel.

import { board, boxes, edges, end, panel, rows, svg } from "./board.js";
import { wasDragged } from "./viewport.js";

const exportLink = document.getElementById("export");
let latest = 0;

function markTrace(found) {
  const columns = new Set(found.columns.map(([key, column]) => end(key, column)));
  const keys = new Set(found.columns.map(([key]) => key));
  const lines = new Set(found.edges.map(([a, ac, b, bc]) => end(a, ac) + end(b, bc)));
  for (const row of rows) row.classList.toggle("traced", columns.has(end(row.dataset.key, row.dataset.column)));
  for (const [key, box] of boxes) box.classList.toggle("traced", keys.has(key));
  const tracedEdges = [];
  for (const edge of edges) {
    const { a, ac, b, bc } = edge.dataset;
    const isTraced = lines.has(end(a, ac) + end(b, bc));
    edge.classList.toggle("traced", isTraced);
    if (isTraced) tracedEdges.push(edge);
  }
  tracedEdges.forEach((edge) => edge.parentNode.append(edge)); // above the others
  svg.classList.toggle("with-trace", columns.size > 0);
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

// Nothing is traced: the panel says why, and how to try again.
function showError(error) {
  const note = document.createElement("p");
  note.className = "note bad";
  note.setAttribute("role", "alert");
  const reason = error instanceof TypeError ? "The server did not answer." : error.message;
  note.textContent = `The trace failed. ${reason} Select the column again to repeat it.`;
  panel.classList.add("open");
  panel.replaceChildren(note);
}

export async function trace(row, { push = true } = {}) {
  const number = ++latest;
  let found;
  try {
    const answer = await fetch(address(board.dataset.trace, row));
    found = await answer.json();
    if (!answer.ok) throw new Error([found.message, found.hint].filter(Boolean).join(" "));
  } catch (error) {
    if (number === latest) showError(error);
    return;
  }
  if (number !== latest) return;
  markTrace(found);
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
  if (svg.contains(focused)) focused.scrollIntoView({ block: "nearest", inline: "nearest" }); // it may be under the panel
}

// A row is identified by its address: in other attributes unsafe characters are replaced.
const columnOf = (row) => columnIn(new URL(row.getAttribute("href"), location.href).searchParams);
const columnIn = (given) => ({
  column: given.get("column"),
  namespace: given.get("of_namespace") ?? given.get("namespace"),
  name: given.get("of_name") ?? given.get("name"),
});
const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);

svg.addEventListener("click", (event) => {
  if (wasDragged() && event.target.closest("a")) event.preventDefault();
  const row = event.target.closest("a.row");
  if (!row || wasDragged() || !isPlain(event)) return;
  event.preventDefault();
  row.focus({ preventScroll: true });
  trace(columnOf(row));
});
panel.addEventListener("click", (event) => {
  if (event.target.closest("a.close") && isPlain(event)) {
    event.preventDefault();
    trace(null);
  }
});
addEventListener("popstate", () => {
  const row = columnIn(new URLSearchParams(location.search));
  trace(row.column ? row : null, { push: false });
});
