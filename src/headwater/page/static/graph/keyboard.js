// Highlights the lines of what is pointed at, and moves between boxes and rows by keyboard. The board is one tab stop,
// from which the arrow keys go on; a tab stop for each column would be too many.

import { end, graph } from "./board.js";
import { closeTrace } from "./steps.js";
import { fit, reveal, zoomBy } from "./viewport.js";

const here = (item) => end(item.dataset.key, item.dataset.column);

function nextItem(item, step) {
  return graph.items[graph.items.indexOf(item) + step] ?? null;
}

function followEdge(item, toRight) {
  const own = [here(item), end(item.dataset.key)];
  for (const edge of own.flatMap((at) => graph.edgesAt.get(at) ?? [])) {
    const { a, ac, b, bc } = edge.dataset;
    const [key, column] = toRight && own.includes(end(a, ac)) ? [b, bc] : !toRight && own.includes(end(b, bc)) ? [a, ac] : [];
    const found = key && graph.items.find((other) => other.dataset.key === key && (other.dataset.column ?? "") === column);
    if (found) return found;
  }
  return null;
}

function move(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const item = event.target.closest("a.item");
  if (event.key === "Escape" && graph.panel.classList.contains("open")) return closeTrace();
  if (event.key === "+" || event.key === "=") return zoomBy(1.25);
  if (event.key === "-") return zoomBy(1 / 1.25);
  if (event.key === "0") return fit();
  if (!event.key.startsWith("Arrow")) return;
  let next = null;
  if (!item) next = event.target === graph.board ? graph.svg.querySelector("g.centre a.item") ?? graph.items[0] : null;
  else if (event.key === "ArrowDown") next = nextItem(item, 1);
  else if (event.key === "ArrowUp") next = nextItem(item, -1);
  else next = followEdge(item, event.key === "ArrowRight");
  if (next) {
    event.preventDefault();
    next.focus({ preventScroll: true });
    reveal(next);
  }
}

export function prepare() {
  const setHovered = (event, isHovered) => {
    const item = event.target.closest("a.item");
    if (!item) return;
    for (const edge of graph.edgesAt.get(here(item)) ?? []) edge.classList.toggle("hovered", isHovered);
  };
  for (const [begin, finish] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    graph.svg.addEventListener(begin, (event) => setHovered(event, true));
    graph.svg.addEventListener(finish, (event) => setHovered(event, false));
  }
  graph.board.addEventListener("keydown", move);
}
