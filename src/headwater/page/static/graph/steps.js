// A step is a link or form of the graph: the server draws the next state, boxes move from their old places to the new
// ones, and the address follows. Without scripts, the same links lead to the same states.

import { graph, read, stage } from "./board.js";
import { place, wasDragged } from "./viewport.js";

const said = document.getElementById("said");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let latest = 0;

function showError(error) {
  const note = document.createElement("p");
  note.className = "note bad";
  note.setAttribute("role", "alert");
  const reason = error instanceof TypeError ? "The server did not answer." : error.message;
  note.textContent = `The graph could not be drawn. ${reason} Select it again to repeat it.`;
  graph.panel.classList.add("open");
  graph.panel.replaceChildren(note);
}

const at = (box) => box.getAttribute("transform").match(/-?[\d.]+/g).map(Number);

function replace(text, anchor) {
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("stage");
  if (!fresh) throw new Error("The answer is not a graph.");
  const before = new Map([...graph.boxes].map(([key, box]) => [key, at(box)]));
  const focused = document.activeElement?.dataset?.item ?? (graph.board.contains(document.activeElement) ? "" : null);
  const scroll = graph.panel.scrollTop;
  stage.replaceChildren(...fresh.childNodes);
  read();
  place(anchor, before);
  const shift = anchor && before.get(anchor) && graph.boxes.get(anchor)
    ? [0, 1].map((axis) => at(graph.boxes.get(anchor))[axis] - before.get(anchor)[axis])
    : [0, 0];
  if (!calm.matches) {
    for (const [key, box] of graph.boxes) {
      const [x, y] = at(box);
      const old = before.get(key)?.map((value, axis) => value + shift[axis]);
      const frames = old
        ? [{ transform: `translate(${old[0]}px, ${old[1]}px)` }, { transform: `translate(${x}px, ${y}px)` }]
        : [{ opacity: 0 }, { opacity: 1 }];
      if (!old || old[0] !== x || old[1] !== y) box.animate(frames, { duration: 220, easing: "ease-out" });
    }
  }
  if (focused !== null) {
    const same = graph.items.find((item) => item.dataset.item === focused) ?? graph.board;
    same.focus({ preventScroll: true });
  }
  graph.panel.scrollTop = scroll;
  said.textContent = graph.panel.classList.contains("open") ? graph.panel.querySelector("h2")?.textContent ?? "" : "";
}

let prepared = () => {};

export async function step(address, { push = true, anchor = null } = {}) {
  const number = ++latest;
  const url = new URL(address, location.href);
  graph.board.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" } });
    const text = await answer.text();
    if (number !== latest) return;
    if (!answer.ok || !text.includes('id="stage"')) {
      const message = new DOMParser().parseFromString(text, "text/html").querySelector("#main p, .login p");
      throw new Error(message?.textContent ?? `The server answered ${answer.status}.`);
    }
    replace(text, anchor);
    if (push) history.pushState(null, "", url);
    prepared();
  } catch (error) {
    if (number === latest) showError(error);
  } finally {
    graph.board.removeAttribute("aria-busy");
  }
}

const isPlain = (event) => !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);

export function closeTrace() {
  step(stage.querySelector("#panel a.close")?.getAttribute("href") ?? location.href);
}

export function listen(after) {
  prepared = after;
  stage.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    if (wasDragged() && graph.svg.contains(link)) return void event.preventDefault();
    const url = new URL(link.getAttribute("href"), location.href);
    if (!isPlain(event) || link.hasAttribute("download") || url.pathname !== location.pathname) return;
    event.preventDefault();
    if (graph.svg.contains(link)) link.focus({ preventScroll: true });
    step(url, { anchor: link.closest("g.dataset")?.dataset.key ?? null });
  });
  stage.addEventListener("change", (event) => {
    const form = event.target.closest("form.controls");
    if (event.target.id === "indirect") {
      graph.svg.classList.toggle("direct-only", !event.target.checked);
    } else if (form) {
      step(`${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`);
    }
  });
  stage.addEventListener("input", (event) => {
    if (event.target.id !== "narrow") return;
    const words = event.target.value.trim().toLowerCase().split(/\s+/);
    for (const item of graph.panel.querySelectorAll(".members li")) {
      item.hidden = !words.every((word) => item.dataset.text.includes(word));
    }
  });
  addEventListener("popstate", () => step(location.href, { push: false }));
}
