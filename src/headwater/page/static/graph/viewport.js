// Zooms, pans and centres the graph.

import { board, panel, svg } from "./board.js";

const size = svg.viewBox.baseVal;
let scale = 1;

// The width of the board that the panel does not cover; on a narrow screen the panel is below the board.
function freeWidth() {
  const covers = panel.classList.contains("open") && getComputedStyle(panel).position === "absolute";
  return board.clientWidth - (covers ? panel.offsetWidth : 0);
}

function zoom(to, x = freeWidth() / 2, y = board.clientHeight / 2) {
  const next = Math.min(2, Math.max(0.1, to));
  const left = (board.scrollLeft + x) / scale;
  const top = (board.scrollTop + y) / scale;
  scale = next;
  svg.setAttribute("width", size.width * scale);
  svg.setAttribute("height", size.height * scale);
  board.scrollTo(left * scale - x, top * scale - y);
}

export const zoomBy = (factor) => zoom(scale * factor);

export function fit() {
  zoom(Math.min(1, freeWidth() / size.width, board.clientHeight / size.height));
}

// Centres the trace if it fits, else the dataset of the page.
function center() {
  const frame = board.getBoundingClientRect();
  const start = svg.querySelector("g.dataset.centre")?.getBoundingClientRect();
  const traced = [...svg.querySelectorAll("g.dataset.traced")].map((box) => box.getBoundingClientRect());
  const left = Math.min(...traced.map((box) => box.left));
  const right = Math.max(...traced.map((box) => box.right));
  const fits = traced.length > 1 && right - left < freeWidth();
  const middle = fits ? (left + right) / 2 : start && start.left + start.width / 2;
  const across = start ?? traced[0];
  if (!across) return;
  board.scrollBy(
    middle - frame.left - freeWidth() / 2,
    across.top - frame.top - Math.max(16, (frame.height - across.height) / 2),
  );
}

let dragStart = null;
let dragged = false;
export const wasDragged = () => dragged;
board.addEventListener("pointerdown", (event) => {
  dragged = false;
  if (event.pointerType === "mouse" && event.button === 0) {
    dragStart = { x: event.clientX, y: event.clientY, left: board.scrollLeft, top: board.scrollTop };
  }
});
board.addEventListener("pointermove", (event) => {
  if (!dragStart) return;
  const [x, y] = [event.clientX - dragStart.x, event.clientY - dragStart.y];
  if (!dragged && Math.hypot(x, y) < 5) return;
  dragged = true;
  board.classList.add("dragged");
  board.scrollTo(dragStart.left - x, dragStart.top - y);
});
addEventListener("pointerup", () => {
  dragStart = null;
  board.classList.remove("dragged");
});
board.addEventListener("dragstart", (event) => event.preventDefault());
board.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls
    event.preventDefault();
    const frame = board.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  },
  { passive: false },
);

document.getElementById("in").addEventListener("click", () => zoomBy(1.25));
document.getElementById("out").addEventListener("click", () => zoomBy(1 / 1.25));
document.getElementById("fit").addEventListener("click", fit);
const indirect = document.getElementById("indirect");
indirect.addEventListener("change", () => svg.classList.toggle("direct-only", !indirect.checked));

// Open as large as is readable; a graph that is smaller than the board is centred in it.
const whole = Math.min(freeWidth() / size.width, board.clientHeight / size.height);
if (whole < 1) zoom(Math.max(whole, board.clientWidth < 700 ? 0.85 : 0.7));
svg.style.marginLeft = `${Math.max(0, (freeWidth() - size.width * scale) / 2)}px`;
center();
