// Keeps a view up to date: the server sends it when it has changed, and only the differences are applied, so focus,
// selection, scroll position and open details stay.

const view = document.getElementById("view");
const state = document.getElementById("live-state");
const parser = new DOMParser();
let source = null;

// An element is recognized by its id, or by its first class, which names its kind: a list that has just appeared must
// not be taken for the list after it, whose open details would close.
const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id || node.classList[0] || null : null);

function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    // open details stay open
    if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function morph(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.id) keyed.set(child.id, child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const known = wanted.id && keyed.get(wanted.id);
    if (known && known !== place && known.nodeName === wanted.nodeName) {
      old.insertBefore(known, place);
      place = known;
    }
    if (place && sameKind(place, wanted)) {
      if (place.nodeType === Node.ELEMENT_NODE) {
        attributes(place, wanted);
        morph(place, wanted);
      } else if (place.nodeValue !== wanted.nodeValue) {
        place.nodeValue = wanted.nodeValue;
      }
      place = place.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function show(text, isBad) {
  state.textContent = text;
  state.classList.toggle("bad", isBad);
}

function open() {
  if (source) return;
  source = new EventSource(view.dataset.live);
  source.addEventListener("open", () => show("live", false));
  source.addEventListener("view", (event) => {
    const fresh = parser.parseFromString(`<div>${JSON.parse(event.data)}</div>`, "text/html");
    morph(view, fresh.body.firstElementChild);
    view.dataset.updates = Number(view.dataset.updates || 0) + 1;
  });
  source.addEventListener("error", () => {
    if (state.classList.contains("bad")) return;
    show(`disconnected since ${new Date().toISOString().slice(11, 16)} UTC`, true);
  });
}

function close() {
  source?.close();
  source = null;
}

// A browser keeps six connections to a server: a hidden page must not hold one.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
if (!document.hidden) open();
