// Lists in which one chooses rows: choose all of a page, and say how many are chosen.
// Without scripts the boxes and the button work as they are.
(() => {
  "use strict";
  const boxes = () => [...document.querySelectorAll('[data-choosing] input[name="task"]')];
  function tell() {
    const all = boxes();
    const chosen = all.filter((box) => box.checked).length;
    for (const said of document.querySelectorAll("[data-chosen]")) { said.hidden = chosen === 0; said.textContent = chosen ? `(${chosen})` : ""; }
    for (const one of document.querySelectorAll("[data-choose-all]")) {
      one.checked = chosen > 0 && chosen === all.length;
      one.indeterminate = chosen > 0 && chosen < all.length;
      one.disabled = all.length === 0;
    }
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-choose-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.closest("[data-choosing]")) tell();
  });
  // A row that came anew must not lose what the reader chose.
  let kept = new Set();
  document.addEventListener("htmx:before:swap", () => { kept = new Set(boxes().filter((box) => box.checked).map((box) => box.value)); });
  document.addEventListener("htmx:after:swap", () => { for (const box of boxes()) box.checked = kept.has(box.value); tell(); });
  tell();
})();
