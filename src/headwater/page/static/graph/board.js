// The elements of the graph, and which lines touch which row.

export const board = document.getElementById("board");
export const panel = document.getElementById("panel");
export const svg = board.querySelector("svg");
export const rows = [...svg.querySelectorAll("a.row")];
export const edges = [...svg.querySelectorAll("path.edge")];
export const boxes = new Map([...svg.querySelectorAll("g.dataset")].map((box) => [box.dataset.key, box]));
export const end = (key, column) => JSON.stringify([key, column || ""]);
export const rowAt = new Map(rows.map((row) => [end(row.dataset.key, row.dataset.column), row]));
export const edgesAt = new Map();

for (const edge of edges) {
  const { a, ac, b, bc } = edge.dataset;
  for (const at of [end(a, ac), end(b, bc)]) {
    if (!edgesAt.has(at)) edgesAt.set(at, []);
    edgesAt.get(at).push(edge);
  }
}
