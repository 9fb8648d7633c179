// The lineage graph. The server draws it; these scripts only set classes and the viewport.

import "./viewport.js";
import "./trace.js";
import "./keyboard.js";
import { board } from "./board.js";

board.dataset.ready = "yes";
