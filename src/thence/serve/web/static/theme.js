// Sets the theme before anything is drawn. The rest is in viewer.js.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* private window */ }
