// Set the chosen theme before the first paint; loaded in the head, not deferred.
(() => {
  document.documentElement.dataset.scripts = "on";
  try {
    const theme = localStorage.getItem("facet-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* storage may be refused: the system's theme stays */ }
})();
