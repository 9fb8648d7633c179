// Zooms, pans and fits the graph by one transform: the browser lays out nothing again.

import { graph } from "./board.js";

const LEAST = 0.05;
const MOST = 2;
const FAR = 0.5; // below this scale, only names are shown
const MARGIN = 24;
const READABLE = 0.75;
const view = { x: 0, y: 0, scale: 1 };

const size = () => graph.svg.viewBox.baseVal;
const number = (value) => Math.round(value * 100) / 100;

// The width of the board that the panel does not cover; on a narrow screen the panel is below the board.
function freeWidth() {
  const covers = graph.panel.classList.contains("open") && getComputedStyle(graph.panel).position === "absolute";
  return graph.board.clientWidth - (covers ? graph.panel.offsetWidth : 0);
}

function show() {
  // sizes first: read after the transform is set, they would make the browser lay out the page at once
  const [width, height, free] = [graph.board.clientWidth, graph.board.clientHeight, freeWidth()];
  const { width: w, height: h } = size();
  const isWhole = view.x >= -1 && view.y >= -1 && view.x + w * view.scale <= free + 1 && view.y + h * view.scale <= height + 1;
  graph.svg.style.transform = `translate(${number(view.x)}px, ${number(view.y)}px) scale(${view.scale})`;
  graph.svg.classList.toggle("far", view.scale < FAR);
  document.getElementById("minimap").toggleAttribute("hidden", isWhole || width < 600);
  const seen = document.getElementById("seen");
  for (const [name, value] of [["x", -view.x], ["y", -view.y], ["width", width], ["height", height]]) {
    seen.setAttribute(name, number(value / view.scale));
  }
}

function zoom(to, x = freeWidth() / 2, y = graph.board.clientHeight / 2) {
  const next = Math.min(MOST, Math.max(LEAST, to));
  view.x = x - ((x - view.x) / view.scale) * next;
  view.y = y - ((y - view.y) / view.scale) * next;
  view.scale = next;
  show();
}

export const zoomBy = (factor) => zoom(view.scale * factor);

export function fit() {
  const { width, height } = size();
  const [room, tall] = [freeWidth(), graph.board.clientHeight];
  view.scale = Math.min(1, Math.max(LEAST, Math.min(room / width, tall / height)));
  view.x = (room - width * view.scale) / 2;
  view.y = (tall - height * view.scale) / 2;
  show();
}

const at = (key) => graph.boxes.get(key)?.getAttribute("transform").match(/-?[\d.]+/g).map(Number);

// After a step: the box that was selected stays where it was; without one, all is fitted.
export function place(anchor, before) {
  prepare();
  const [old, now] = [before.get(anchor), at(anchor)];
  if (!old || !now) return begin();
  view.x += (old[0] - now[0]) * view.scale;
  view.y += (old[1] - now[1]) * view.scale;
  const { width, height } = size();
  const isOut = view.x + width * view.scale > freeWidth() + MARGIN || view.x < -MARGIN ||
    view.y + height * view.scale > graph.board.clientHeight + MARGIN || view.y < -MARGIN;
  const whole = Math.min(freeWidth() / width, graph.board.clientHeight / height);
  if (isOut && whole >= 0.7) return fit();
  show();
}

// Moves the least that shows an element whole.
export function reveal(element) {
  const frame = graph.board.getBoundingClientRect();
  const box = element.getBoundingClientRect();
  const right = frame.left + freeWidth();
  view.x += Math.max(0, frame.left + MARGIN - box.left) - Math.max(0, box.right + MARGIN - right);
  view.y += Math.max(0, frame.top + MARGIN - box.top) - Math.max(0, box.bottom + MARGIN - frame.bottom);
  show();
}

const pointers = new Map();
let dragged = false;
export const wasDragged = () => dragged;

function prepare() {
  const { board } = graph;
  board.classList.add("moves");
  board.addEventListener("scroll", () => board.scrollTo(0, 0)); // a browser scrolls to what it focuses
  board.addEventListener("dragstart", (event) => event.preventDefault());
  board.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    if (!pointers.size) dragged = false;
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  board.addEventListener("wheel", wheel, { passive: false });
  document.getElementById("in").addEventListener("click", () => zoomBy(1.25));
  document.getElementById("out").addEventListener("click", () => zoomBy(1 / 1.25));
  document.getElementById("fit").addEventListener("click", fit);
  const map = document.getElementById("minimap");
  const jump = (event) => {
    if (!event.buttons) return;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    view.x = graph.board.clientWidth / 2 - point.x * view.scale;
    view.y = graph.board.clientHeight / 2 - point.y * view.scale;
    show();
  };
  map.addEventListener("pointerdown", jump);
  map.addEventListener("pointermove", jump);
}

addEventListener("pointermove", (event) => {
  const old = pointers.get(event.pointerId);
  if (!old) return;
  const [x, y] = [event.clientX - old[0], event.clientY - old[1]];
  if (!dragged && Math.hypot(x, y) < 5) return;
  dragged = true;
  graph.board.classList.add("dragged");
  if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
    const frame = graph.board.getBoundingClientRect();
    const spread = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
    const before = Math.hypot(old[0] - other[0], old[1] - other[1]);
    if (before) zoom((view.scale * spread) / before, other[0] - frame.left, other[1] - frame.top);
  } else {
    view.x += x;
    view.y += y;
    show();
  }
  pointers.set(event.pointerId, [event.clientX, event.clientY]);
});
for (const name of ["pointerup", "pointercancel"]) {
  addEventListener(name, (event) => {
    pointers.delete(event.pointerId);
    graph.board.classList.remove("dragged");
  });
}

function wheel(event) {
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) {
    const frame = graph.board.getBoundingClientRect();
    zoom(view.scale * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  } else {
    view.x -= event.shiftKey ? event.deltaY : event.deltaX;
    view.y -= event.shiftKey ? 0 : event.deltaY;
    show();
  }
}

// Fits the graph; where that would be too small to read columns, or on a narrow screen anything, shows its centre.
function begin() {
  fit();
  const centre = graph.svg.querySelector("g.centre")?.dataset.key;
  const isOpen = graph.svg.querySelector("a.row") && !graph.svg.classList.contains("with-trace");
  const least = graph.board.clientWidth < 600 ? READABLE : isOpen ? FAR : 0;
  if (view.scale >= least || !centre) return;
  const [x, y] = at(centre);
  view.scale = READABLE;
  view.x = graph.board.clientWidth / 2 - (x + 118) * READABLE;
  view.y = graph.board.clientHeight / 2 - (y + 36) * READABLE;
  show();
}

export function open() {
  prepare();
  const details = document.getElementById("graph");
  if (innerWidth <= 600 && graph.panel.classList.contains("open")) details.removeAttribute("open"); // the list is first
  begin();
  addEventListener("resize", begin);
  details.addEventListener("toggle", begin);
}
