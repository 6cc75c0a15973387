// What the keyboard and one click do in forms: "/" leads to the search, and "select all" checks each message of the page.
// Without this script each message is checked by itself.
"use strict";
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  const search = document.querySelector("input[type=search]");
  if (search) {
    event.preventDefault();
    search.select();
  }
});

const every = document.querySelector("input.every");
if (every) {
  const boxes = [...document.querySelectorAll("input[type=checkbox][name=id]")];
  const show = () => {
    const checked = boxes.filter((box) => box.checked).length;
    every.checked = checked === boxes.length;
    every.indeterminate = checked > 0 && checked < boxes.length;
  };
  every.addEventListener("change", () => boxes.forEach((box) => (box.checked = every.checked)));
  boxes.forEach((box) => box.addEventListener("change", show));
  every.closest("label").hidden = false;
  show();
}
