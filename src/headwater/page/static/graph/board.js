// The elements of the graph. They are found again after each step, since the server draws each state of it.

const find = (selector) => document.querySelector(selector);
export const stage = find("#stage");
export const end = (key, column) => JSON.stringify([key, column || ""]);
export const graph = {};

export function read() {
  graph.board = find("#board");
  graph.panel = find("#panel");
  graph.svg = graph.board.querySelector("svg");
  graph.items = [...graph.svg.querySelectorAll("a.item")];
  graph.edges = [...graph.svg.querySelectorAll("path.edge")];
  graph.boxes = new Map([...graph.svg.querySelectorAll("g.dataset")].map((box) => [box.dataset.key, box]));
  graph.edgesAt = new Map();
  for (const edge of graph.edges) {
    const { a, ac, b, bc } = edge.dataset;
    for (const at of new Set([end(a, ac), end(b, bc), end(a), end(b)])) {
      if (!graph.edgesAt.has(at)) graph.edgesAt.set(at, []);
      graph.edgesAt.get(at).push(edge);
    }
  }
  for (const item of graph.svg.querySelectorAll("a")) item.setAttribute("tabindex", "-1");
}
