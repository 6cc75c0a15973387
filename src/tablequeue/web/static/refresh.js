// Renews the content of pages with data-refresh every few seconds while they are visible, and says so if it cannot.
// Without this script they show the moment at which they were loaded.
"use strict";
const EVERY = 4000;
// As long as this an answer may take: a server that is suspended gives none.
const PATIENCE = 8000;

const main = document.querySelector("main[data-refresh]");
let loaded = new Date();
let asking = false;

async function refresh() {
  // A question that somebody is about to answer stays.
  if (asking || document.hidden || main.querySelector(".sure[open]")) return;
  asking = true;
  try {
    const options = { headers: { accept: "text/html" }, redirect: "manual", signal: AbortSignal.timeout(PATIENCE) };
    const answer = await fetch(location.href, options);
    if (answer.type === "opaqueredirect") return tell("You are not logged in any more: load the page again.");
    if (!answer.ok) return tell(`The dashboard answers with the error ${answer.status}.`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    renew(main, page.querySelector("main"));
    loaded = new Date();
    tell("");
  } catch {
    tell("The dashboard does not answer.");
  } finally {
    asking = false;
  }
}

// Says why the page is old, and how old; nothing if it is not.
function tell(words) {
  const notice = document.querySelector(".stale");
  const text = words && `${words} These are the numbers of ${loaded.toISOString().slice(11, 19)}.`;
  if (notice.textContent !== text) notice.textContent = text;
  notice.hidden = !words;
}

// Gives a node what the new one has, and keeps what is the same: the focus, a selection, and what is open stay. Nodes
// with the same data-key are the same, wherever they are.
function renew(old, now) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const name of old.getAttributeNames()) {
    if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const name of now.getAttributeNames()) {
    if (old.getAttribute(name) !== now.getAttribute(name)) old.setAttribute(name, now.getAttribute(name));
  }
  const keyed = new Map([...old.children].filter(key).map((child) => [key(child), child]));
  let place = old.firstChild;
  for (const wanted of [...now.childNodes]) {
    const same = keyed.get(key(wanted));
    if (same && same.parentNode === old) while (place !== same) place = drop(place);
    if (place && place.nodeName === wanted.nodeName && key(place) === key(wanted)) {
      renew(place, wanted);
      place = place.nextSibling;
    } else if (place && !key(place) && !key(wanted)) {
      const next = place.nextSibling;
      place.replaceWith(wanted);
      place = next;
    } else {
      old.insertBefore(wanted, place);
    }
  }
  while (place) place = drop(place);
}

function key(node) {
  return (node.dataset && node.dataset.key) || "";
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

if (main) {
  setInterval(refresh, EVERY);
  document.addEventListener("visibilitychange", refresh);
}
