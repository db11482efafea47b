// The submit form's comforts: drop or choose a batch script, read it into the form, preview as one types.
// Without scripts the buttons "Read the script" and "Preview" do the same by posting the form.
(() => {
  "use strict";
  const LIMIT = 256 * 1024;
  const form = document.getElementById("submit-form");
  if (!form) return;
  const script = form.elements.namedItem("script");
  const drop = form.querySelector("[data-drop]");
  const file = form.querySelector("input[type=file]");
  const told = form.querySelector("[data-file-problem]");

  async function take(chosen) {
    told.textContent = "";
    if (!chosen) return;
    if (chosen.size > LIMIT) { told.textContent = told.dataset.tooLarge; return; }
    const text = await chosen.text();
    if (text.includes("\0")) { told.textContent = told.dataset.notText; return; }
    script.value = text.replace(/\r\n?/g, "\n");
    const name = form.elements.namedItem("name");
    if (!name.value) name.value = chosen.name.replace(/\.[^.]+$/, "");
    const choice = form.querySelector('input[name="work"][value="script"]');
    choice.checked = true;
    script.dispatchEvent(new Event("input", { bubbles: true }));
  }
  // The address keeps what is typed, so that reload, back and a sent link show the same form.
  const LEFT_OUT = new Set(["csrfmiddlewaretoken", "once", "words", "saved_as", "sharing"]);
  const MOST = 1800;
  form.addEventListener("input", () => {
    const said = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string" && value.trim() && !LEFT_OUT.has(name) && !(name === "work" && value === "command")) said.set(name, value);
    }
    if (said.toString().length > MOST) { said.delete("script"); said.delete("setup"); said.delete("variables"); }
    const query = said.toString();
    if (query.length <= MOST) history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  });

  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); take(event.dataTransfer.files[0]); });
  file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
})();
