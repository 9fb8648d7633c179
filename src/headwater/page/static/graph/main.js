// The lineage graph. The server draws every state of it; these scripts fetch the next one, and move the viewport.

import { graph, read } from "./board.js";
import { prepare } from "./keyboard.js";
import { listen } from "./steps.js";
import { open } from "./viewport.js";

read();
open();
prepare();
listen(() => {
  prepare();
  graph.board.dataset.ready = "yes";
});
graph.board.dataset.ready = "yes";
