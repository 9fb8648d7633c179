// Highlights the lines of a row, and moves between rows by keyboard. The board is one tab stop, from which the arrow
// keys go on; a tab stop for each column would be too many.

import { board, boxes, edgesAt, end, rowAt, rows, svg } from "./board.js";
import { trace } from "./trace.js";
import { fit, zoomBy } from "./viewport.js";

function setHovered(row, isHovered) {
  for (const edge of edgesAt.get(end(row.dataset.key, row.dataset.column)) ?? []) edge.classList.toggle("hovered", isHovered);
}
for (const [begin, end] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  svg.addEventListener(begin, (event) => event.target.closest("a.row") && setHovered(event.target.closest("a.row"), true));
  svg.addEventListener(end, (event) => event.target.closest("a.row") && setHovered(event.target.closest("a.row"), false));
}

for (const row of rows) row.setAttribute("tabindex", "-1");

function nextRow(row, step) {
  const own = [...row.closest("g.dataset").querySelectorAll("a.row")];
  const next = own[own.indexOf(row) + step];
  if (next) return next;
  const all = [...boxes.values()];
  for (let at = all.indexOf(row.closest("g.dataset")) + step; all[at]; at += step) {
    const others = [...all[at].querySelectorAll("a.row")];
    if (others.length) return others[step > 0 ? 0 : others.length - 1];
  }
  return null;
}

function followEdge(row, toRight) {
  const here = end(row.dataset.key, row.dataset.column);
  for (const edge of edgesAt.get(here) ?? []) {
    const { a, ac, b, bc } = edge.dataset;
    const other = toRight && end(a, ac) === here ? end(b, bc) : !toRight && end(b, bc) === here ? end(a, ac) : "";
    if (rowAt.has(other)) return rowAt.get(other);
  }
  return null;
}

board.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const row = event.target.closest("a.row");
  if (event.key === "Escape" && svg.classList.contains("with-trace")) return void trace(null);
  if (event.key === "+" || event.key === "=") return zoomBy(1.25);
  if (event.key === "-") return zoomBy(1 / 1.25);
  if (event.key === "0") return fit();
  if (!event.key.startsWith("Arrow")) return;
  let next = null;
  if (!row) next = event.target === board ? svg.querySelector("g.dataset.centre a.row") ?? rows[0] : null;
  else if (event.key === "ArrowDown") next = nextRow(row, 1);
  else if (event.key === "ArrowUp") next = nextRow(row, -1);
  else next = followEdge(row, event.key === "ArrowRight");
  if (next) {
    event.preventDefault();
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
});
